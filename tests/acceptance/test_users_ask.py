"""What users of such tools ask for, in twelve items: a test for each, with the fake engine.

Items 7, 8 and 9 are about a model's answers: test_users_ask_real.py.
"""

import gzip
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shell import Shell, assert_each_once, lines

#: Prints the most memory (KiB) that a command had, behind what the command prints.
MEASURED = (
    "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode;"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
)


#: A worker that takes its time: 40 rows a second.
SLOW = ("--seconds-per-row 0.2", "--max-num-seqs", "8")


def write(shell: Shell, name: str, *rows: Any) -> Path:
    """A file of JSON lines in the shell's folder."""
    path = shell.folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def peak_mb(shell: Shell, *command: str) -> float:
    """The most memory that a command had."""
    ended = shell.run(sys.executable, "-c", MEASURED, *command)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout.split()[-1]) / 1024


def test_01_constant_memory_and_a_bar_of_persisted_rows_that_ends(shell: Shell) -> None:
    """Constant memory on huge inputs; no hang at "100 %"; a bar that counts persisted rows, starts at the resumed
    value, shows rate and ETA."""
    sizes = {}
    for name, count in (("small", 500), ("large", 40_000)):  # 0.5 MB, 40 MB
        write(
            shell, f"{name}.jsonl", *({"prompt": f"{number} {'x' * 1000}", "max_tokens": 1} for number in range(count))
        )
        sizes[name] = peak_mb(shell, "producer", "submit", f"{name}.jsonl", "--name", name)
    assert sizes["large"] < 150
    assert sizes["large"] - sizes["small"] < 45
    shell.producer("cancel", "large")

    slow = shell.fake(*SLOW)
    job = shell.submit(text=lines(600))["job_id"]
    shell.await_done(job, 100)
    shell.producer("pause", job)
    before = shell.status(job)["done"]
    slow.terminate()
    shell.fake()
    shell.producer("resume", job)
    watched = subprocess.Popen(
        ["producer", "watch", job, "--json"], env=shell.environment, cwd=shell.folder, stdout=subprocess.PIPE
    )
    out, _ = watched.communicate(timeout=60)  # it ends by itself
    moments = [json.loads(line) for line in out.splitlines()]
    assert watched.returncode == 0
    assert moments[0]["done"] >= before >= 100
    assert (moments[-1]["done"], moments[-1]["rows"], moments[-1]["state"]) == (600, 600, "completed")
    assert moments[-1]["rows_per_second"] > 0
    assert "seconds_left" in moments[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_02_the_same_file_goes_on_and_finished_rows_are_never_lost(shell: Shell, how: signal.Signals) -> None:
    """Resubmitting the same file continues; a crash, Ctrl-C or a lost node never loses finished rows. (A full disk:
    test_consume.py.)"""
    ids = [str(number) for number in range(60_000)]
    path = shell.folder / "rows.jsonl"
    path.write_text(lines(len(ids)))
    submitting = subprocess.Popen(
        ["producer", "submit", path], env=shell.environment, cwd=shell.folder, stderr=subprocess.PIPE
    )
    while not any(job["rows"] for job in json.loads(shell.producer("list", "--json"))):
        assert submitting.poll() is None, "it must be interrupted before its end"
    submitting.send_signal(how)
    submitting.communicate(timeout=30)
    done = shell.submit("rows.jsonl")
    assert (done["rows"], done["resumed"]) == (60_000, False)
    assert done["continued"] > 0
    shell.producer("cancel", done["job_id"])

    path.write_text(lines(400))
    worker = shell.fake(*SLOW)
    job = shell.submit("rows.jsonl")["job_id"]
    shell.await_done(job, 60)
    worker.kill()  # a lost node
    finished = shell.status(job)["done"]
    again = shell.submit("rows.jsonl")
    assert (again["job_id"], again["resumed"]) == (job, True)
    shell.producer("results", job, "-o", "part.jsonl", "--partial")
    first = {row["custom_id"]: row for row in read(shell.folder / "part.jsonl")}
    assert len(first) == finished
    shell.fake()
    shell.producer("watch", job)
    results = shell.results(job)
    assert_each_once(results, ids[:400])
    assert all(first.get(row["custom_id"], row) == row for row in results), "what was finished is not computed again"


#: A line that is no row, and its error's code: what the item lists, one by one.
BAD_LINES = {
    "empty prompt": (b'{"prompt": ""}', "empty_prompt"),
    "unknown field": (b'{"prompt": "x", "temprature": 1}', "unknown_parameter"),
    "wrong type": (b'{"prompt": "x", "temperature": "hot"}', "invalid_request"),
    "bad UTF-8": (b'{"prompt": "\xff"}', "invalid_utf8"),
    "lone surrogate": (b'{"prompt": "\\ud800"}', "lone_surrogate"),
    "duplicate JSON keys": (b'{"prompt": "x", "prompt": "y"}', "duplicate_key"),
    "NaN": (b'{"prompt": "x", "temperature": NaN}', "invalid_number"),
    "infinity": (b'{"prompt": "x", "temperature": 1e999}', "number_out_of_range"),
    "huge integer": (b'{"prompt": "x", "seed": 123456789012345678901234567890}', "number_out_of_range"),
    "deep nesting": (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested_too_deep"),
    "giant line": (b'{"prompt": "' + b"x" * (17 << 20) + b'"}', "line_too_long"),
}


def test_03_a_bad_row_is_a_row_error_with_its_line_and_reason(shell: Shell) -> None:
    """Never a dead job; every kind of bad row that the item lists. (What only a model can tell, such as
    over-long prompts: test_users_ask_real.py.)"""
    good = [
        b'\xef\xbb\xbf{"custom_id": "BOM", "prompt": "x"}',
        b'{"custom_id": "CRLF", "prompt": "x"}\r',
        '{"custom_id": "U+2028", "prompt": "a\u2028b\u0085c"}'.encode(),
    ]
    bad = [line for line, _ in BAD_LINES.values()]
    double = b'{"custom_id": "CRLF", "prompt": "x"}'
    (shell.folder / "rows.jsonl").write_bytes(b"\n".join([*good, b"", b"  ", *bad, double, b""]))
    assert "on line 2 and again on line 17" in shell.run("producer", "submit", "rows.jsonl").stderr
    shell.fake()
    job = shell.submit("rows.jsonl", "--on-duplicate", "error-row")
    assert job["rows"] == 3 + len(bad) + 1
    shell.producer("watch", job["job_id"], code=1)
    results = shell.results(job["job_id"])
    assert [row["custom_id"] for row in results[:3]] == ["BOM", "CRLF", "U+2028"]
    assert not [row for row in results[:3] if row["error"]]
    errors = [row["error"] for row in results[3:]]
    assert [error["line"] for error in errors] == list(range(6, 6 + len(errors))), "blank lines count"
    for error, (kind, (_, code)) in zip(errors, BAD_LINES.items(), strict=False):
        assert error["code"] == code, kind
        assert error["message"], kind
    assert (results[-1]["custom_id"], errors[-1]["code"]) == ("CRLF", "duplicate_custom_id")
    assert "temperature" in errors[1]["message"], "the parameter that was meant is suggested"


def test_04_each_input_line_gives_exactly_one_success_or_one_error(shell: Shell) -> None:
    """The result count equals the input count, always: whoever is killed meanwhile."""
    rows = [{"custom_id": f"r{number}", "prompt": f"row {number}"} for number in range(300)]
    for number in range(0, 300, 30):
        rows[number]["prompt"] = ""
    write(shell, "rows.jsonl", *rows)
    flags = ("--fail-every 7 --seconds-per-row 0.02", "--max-num-seqs", "16")
    first = shell.fake(*flags)
    job = shell.submit("rows.jsonl")["job_id"]
    shell.await_done(job, 60)
    first.kill()
    shell.fake(*flags)
    shell.producer("watch", job, code=1)
    told = shell.run("producer", "results", job, "-o", "out.jsonl", "--order", "input")
    assert "300 of 300 rows" in told.stderr
    results = read(shell.folder / "out.jsonl")
    assert [row["custom_id"] for row in results] == [f"r{number}" for number in range(300)]
    assert all((row["response"] is None) != (row["error"] is None) for row in results)
    status = shell.status(job)
    assert sum(bool(row["error"]) for row in results) == status["failed"] > 10
    shell.producer("results", job, "-o", "ok.jsonl", "--errors", "bad.jsonl")
    parts = {row["custom_id"]: row for name in ("ok.jsonl", "bad.jsonl") for row in read(shell.folder / name)}
    assert parts == {row["custom_id"]: row for row in results}


def test_05_results_in_input_order_while_the_job_runs_as_parquet_and_atomically(shell: Shell) -> None:
    """Results in input order on request, and readable while the job runs; JSONL and Parquet; atomic output."""
    import pyarrow.parquet as pq

    out = shell.folder / "out.jsonl"
    out.write_text("what was there\n")
    slow = shell.fake(*SLOW)
    job = shell.submit(text=lines(800))["job_id"]
    shell.await_done(job, 40)
    shell.producer("pause", job)
    assert "--partial" in shell.run("producer", "results", job, "-o", out, "--overwrite").stderr
    assert out.read_text() == "what was there\n", "a file appears whole or not at all"
    shell.producer("results", job, "-o", out, "--partial", "--order", "input", "--overwrite")
    part = [int(row["custom_id"]) for row in read(out)]
    assert 40 <= len(part) < 800
    assert part == sorted(part)
    slow.terminate()
    shell.fake()
    shell.producer("resume", job)
    shell.producer("results", job, "-o", "followed.jsonl", "--follow")
    shell.producer("results", job, "-o", out, "--order", "input")
    assert [row["custom_id"] for row in read(out)] == [str(number) for number in range(800)]
    assert sorted(map(str, read(shell.folder / "followed.jsonl"))) == sorted(map(str, read(out)))
    shell.producer("results", job, "-o", "out.parquet", "--order", "input")
    table = pq.read_table(shell.folder / "out.parquet").to_pylist()
    assert [(row["custom_id"], row["text"]) for row in table] == [
        (row["custom_id"], row["response"]["body"]["choices"][0]["message"]["content"]) for row in read(out)
    ]
    left = {path.name for path in shell.folder.iterdir()} - {"data", "worker-0.log", "worker-1.log"}
    assert left == {
        *("out.jsonl", "followed.jsonl", "out.parquet"),
        *("out.jsonl.manifest.json", "followed.jsonl.manifest.json", "out.parquet.manifest.json"),
    }


def test_06_openai_batch_lines_and_short_forms_in_and_openais_shape_out(shell: Shell) -> None:
    """`custom_id`, `method`, `url`, `body` for both URLs, and short forms; results in OpenAI's shape, errors in their
    own file too."""
    message = [{"role": "user", "content": "hello"}]
    rows = [
        {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": message}},
        {"custom_id": "p", "method": "POST", "url": "/v1/completions", "body": {"prompt": "hello", "max_tokens": 3}},
        {"messages": message, "max_tokens": 2},
        {"prompt": "hello"},
        {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"input": "hello"}},
    ]
    with gzip.open(shell.folder / "batch.jsonl.gz", "wt") as stream:
        stream.write("".join(f"{json.dumps(row)}\n" for row in rows))
    shell.fake()
    job = shell.submit("batch.jsonl.gz")["job_id"]
    shell.producer("watch", job, code=1)
    shell.producer("results", job, "-o", "ok.jsonl", "--errors", "bad.jsonl", "--order", "input")
    ok, (bad,) = read(shell.folder / "ok.jsonl"), read(shell.folder / "bad.jsonl")
    assert [row["custom_id"] for row in ok] == ["c", "p", "row-3", "row-4"]
    for row in ok:
        assert list(row) == ["id", "custom_id", "response", "error"]
        assert (row["response"]["status_code"], row["error"]) == (200, None)
    assert ["message" in row["response"]["body"]["choices"][0] for row in ok] == [True, False, True, False]
    assert (bad["custom_id"], bad["response"], bad["error"]["code"]) == ("e", None, "unknown_url")


def test_10_identical_rows_are_computed_once_and_the_cost_is_told(shell: Shell) -> None:
    """Identical rows computed once (opt-in), acceptance rate and tokens/s visible, a report at the end."""
    write(shell, "rows.jsonl", *({"custom_id": f"r{n}", "prompt": f"p{n % 5}", "max_tokens": 4} for n in range(100)))
    worker = shell.fake("--seconds-per-row 0.01")
    job = shell.submit("rows.jsonl", "--dedupe")
    assert job["copies"] == 95
    told = shell.run("producer", "watch", job["job_id"])
    assert "tokens/s" in told.stderr
    results = shell.results(job["job_id"])
    assert_each_once(results, [f"r{n}" for n in range(100)])
    texts = [row["response"]["body"]["choices"][0]["text"] for row in results]
    assert texts == [texts[n % 5] for n in range(100)]
    assert shell.status(job["job_id"])["completion_tokens"] == 5 * 4, "tokens are counted where they were computed"
    assert worker.metric('minedraft_tokens_total{kind="completion"}') == 5 * 4
    assert shell.submit("rows.jsonl")["job_id"] != job["job_id"], "it is opt-in"
    shell.producer("results", job["job_id"], "-o", "out.jsonl")
    report = json.loads((shell.folder / "out.jsonl.manifest.json").read_text())
    assert report["tokens"]["completion"] == 5 * 4
    assert report["throughput"]["completion_tokens_per_second"] > 0
    assert {"acceptance_rate", "overlap"} <= report.keys()


def test_11_a_manifest_says_where_results_come_from(shell: Shell) -> None:
    """Model and revision, drafter, versions, sampling, lossless or not, digests; `usage` per row."""
    shell.fake("", "--served-model-name", "mine")
    job = shell.submit("-", "--defaults", '{"temperature": 0.5}', "--name", "d", text=lines(20))["job_id"]
    shell.producer("watch", job)
    shell.producer("results", "d", "-o", "out.jsonl")
    results = read(shell.folder / "out.jsonl")
    assert all(row["response"]["body"]["usage"]["completion_tokens"] > 0 for row in results)
    told = json.loads((shell.folder / "out.jsonl.manifest.json").read_text())
    assert (told["job"]["job_id"], told["job"]["model"], told["sampling"]) == (job, "mine", {"temperature": 0.5})
    assert told["rows"]["submitted"] == told["rows"]["written"] == 20
    assert told["lossless"] is True
    (engine,) = told["engines"]
    assert {"model", "revision", "drafter", "drafter_revision", "mode", "versions"} <= engine.keys()
    assert (engine["model"], engine["mode"], engine["rows"]) == ("mine", "fake", 20)
    assert told["versions"]["minedraft-worker"] == [told["producer"]]
    (file,) = told["files"]
    content = (shell.folder / "out.jsonl").read_bytes()
    assert (file["name"], file["sha256"]) == ("out.jsonl", hashlib.sha256(content).hexdigest())


def test_12_cancel_retry_list_status_and_errors_for_people_and_scripts(shell: Shell) -> None:
    """Cancel keeps what is done; retry only what failed; list, status, errors, with --json for scripts."""
    worker = shell.fake("--fail-on unlucky --seconds-per-row 0.02", "--max-num-seqs", "8")
    rows = [{"custom_id": f"r{n}", "prompt": "unlucky" if n % 10 == 0 else f"fine {n}"} for n in range(50)]
    write(shell, "rows.jsonl", *rows)
    job = shell.submit("rows.jsonl")["job_id"]
    shell.producer("watch", "rows.jsonl", code=1)
    told = json.loads(shell.producer("errors", "rows.jsonl", "--json"))
    assert sorted(error["line"] for error in told["errors"]) == [1, 11, 21, 31, 41]
    assert told["failed"] == sum(told["by_code"].values()) == 5
    assert "5 of 50 rows" in shell.producer("errors", job)
    (listed,) = json.loads(shell.producer("list", "--json"))
    assert (listed["job_id"], listed["state"], listed["failed"]) == (job, "completed", 5)
    assert json.loads(shell.producer("status", "rows.jsonl", "--json"))["job_id"] == job
    assert job in shell.producer("list")
    before = {row["custom_id"]: row["id"] for row in shell.results(job)}
    worker.terminate()
    shell.fake()
    assert json.loads(shell.producer("retry", job, "--json"))["retried"] == 5
    shell.producer("watch", job)
    after = {row["custom_id"]: row["id"] for row in shell.results(job)}
    assert {name for name in after if after[name] != before[name]} == {f"r{n}" for n in range(0, 50, 10)}

    shell.workers[-1].terminate()
    shell.fake(*SLOW)
    long = shell.submit(text=lines(4000))["job_id"]
    shell.await_done(long, 20)
    cancelled = json.loads(shell.producer("cancel", long, "--json"))
    assert (cancelled["state"], cancelled["rows"]) == ("cancelled", 4000)
    assert len(shell.results(long)) == cancelled["done"] >= 20
