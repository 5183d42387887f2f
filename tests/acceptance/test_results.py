"""`producer results`: files in every shape, followed, continued and checked."""

import gzip
import hashlib
import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from redis import Redis
from shell import Shell, lines

from producer.record.keys import key
from producer.results.shapes import flat
from producer.server.embedded import EmbeddedRedis

ROWS = 100


def refused(shell: Shell, *arguments: str, words: str, code: int = 2) -> None:
    ended = shell.run("producer", "results", *arguments)
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (code, "", 1), ended.stderr
    assert words in ended.stderr


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def names(shell: Shell) -> set[str]:
    return {path.name for path in shell.folder.iterdir() if path.is_file() and not path.name.startswith("worker-")}


def ended_job(shell: Shell) -> str:
    """100 rows, of which 10 failed in the engine and one was refused at submission."""
    shell.fake("--fail-every 10")
    job = str(shell.submit(text=lines(ROWS) + "{broken\n")["job_id"])
    shell.producer("watch", job, code=1)
    return job


def test_every_shape_of_one_job(shell: Shell) -> None:
    job = ended_job(shell)
    said = shell.run("producer", "results", job, "-o", "out.jsonl", "--order", "input").stderr
    assert said == "101 of 101 rows, 11 of them failed, written to out.jsonl\n"
    whole = read(shell.folder / "out.jsonl")
    stored = (shell.folder / "out.jsonl").read_bytes()
    assert [line["custom_id"] for line in whole] == [*map(str, range(ROWS)), None]

    said = shell.run("producer", "results", job, "-o", "good.jsonl", "--errors", "bad.jsonl", "--order", "input").stderr
    assert said == "101 of 101 rows, 11 of them failed, written to good.jsonl, failed ones to bad.jsonl\n"
    assert read(shell.folder / "good.jsonl") == [line for line in whole if line["response"]]
    assert read(shell.folder / "bad.jsonl") == [line for line in whole if line["error"]]

    records = [flat(line) for line in stored.splitlines()]
    assert [
        json.loads(line) for line in shell.producer("results", job, "--format", "flat", "--order", "input").splitlines()
    ] == records
    shell.producer("results", job, "-o", "out.jsonl.gz", "--order", "input", "--no-manifest")
    assert gzip.decompress((shell.folder / "out.jsonl.gz").read_bytes()) == stored

    shell.producer("results", job, "-o", "out.parquet", "--order", "input", "--no-manifest")
    table = pq.read_table(shell.folder / "out.parquet").to_pylist()
    assert [row["response"] and json.loads(row.pop("response")) for row in table] == [
        line["response"] for line in whole
    ]
    assert [{**row, "response": None} for row in table] == [{**record, "response": None} for record in records]

    by_end = shell.producer("results", job).splitlines()
    assert sorted(by_end) == sorted(stored.decode().splitlines())
    assert "error" in by_end[0], "the line that was refused ended first"
    wanted = {"good.jsonl", "bad.jsonl", "out.jsonl", "out.jsonl.gz", "out.parquet"}
    assert names(shell) == wanted | {"good.jsonl.manifest.json", "out.jsonl.manifest.json"}


def test_the_manifest_says_what_is_true(shell: Shell) -> None:
    shell.fake("--fail-every 10", "--served-model-name", "mine")
    job = shell.submit("-", "--defaults", '{"temperature": 0}', text=lines(ROWS))["job_id"]
    shell.producer("watch", job, code=1)
    shell.producer("results", job, "-o", "good.jsonl", "--errors", "bad.jsonl")
    found = json.loads((shell.folder / "good.jsonl.manifest.json").read_text())
    status = shell.status(job)
    assert (found["job"]["job_id"], found["job"]["model"], found["job"]["state"]) == (job, "mine", "completed")
    assert (found["rows"]["submitted"], found["rows"]["written"], found["rows"]["failed"]) == (ROWS, ROWS, 10)
    assert found["rows"]["error_codes"] == {"fake_failure": 10}
    assert found["tokens"] == {"prompt": status["prompt_tokens"], "completion": status["completion_tokens"]}
    assert found["sampling"] == {"temperature": 0}
    assert found["throughput"]["rows_per_second"] > 0
    assert [(each["mode"], each["model"], each["rows"]) for each in found["engines"]] == [("fake", "mine", ROWS)]
    assert found["lossless"] is True
    for file, holds in zip(found["files"], ("answered", "failed"), strict=True):
        data = (shell.folder / file["name"]).read_bytes()
        assert (file["holds"], file["lines"], file["bytes"]) == (holds, data.count(b"\n"), len(data))
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
    shell.producer("results", job, "--consume", "-o", "moved.jsonl")
    moved = json.loads((shell.folder / "moved.jsonl.manifest.json").read_text())
    assert moved["files"][0]["sha256"] == hashlib.sha256((shell.folder / "moved.jsonl").read_bytes()).hexdigest()
    assert (moved["rows"]["written"], moved["rows"]["failed"], moved["rows"]["consumed"]) == (ROWS, 10, ROWS)
    assert moved["engines"] == found["engines"]


def follower(shell: Shell, job: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["producer", "results", job, "--follow", *arguments],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("arguments", [("-o", "out.jsonl"), ("-o", "out.parquet", "--errors", "bad.jsonl")], ids=str)
def test_a_follower_that_is_killed_goes_on_where_it_was(shell: Shell, arguments: tuple[str, ...]) -> None:
    chance = random.Random(1)
    shell.fake("--seconds-per-row 0.01 --fail-every 10", "--max-num-seqs", "4")
    job = shell.submit(text=lines(1000))["job_id"]
    out = shell.folder / arguments[1]
    part = shell.folder / f"{arguments[1]}.part"
    for _ in range(5):
        following = follower(shell, job, *arguments)
        size = part.stat().st_size if part.exists() else 0
        deadline = time.monotonic() + 30
        while following.poll() is None and not (part.exists() and part.stat().st_size > size):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        following.kill()
        following.communicate()
        if part.exists():
            assert not out.exists()
            with part.open("r+b") as stream:
                stream.truncate(max(0, part.stat().st_size - chance.randrange(400)))  # a line may be torn
    following = follower(shell, job, *arguments)
    _, said = following.communicate(timeout=60)
    assert following.returncode == 1, said  # as `watch`: some rows failed
    assert "1000 of 1000 rows, 100 of them failed, written to " in said
    assert not part.exists()
    shell.producer("results", job, *(f"whole.{name}" if "." in name else name for name in arguments))
    for name in (name for name in arguments if "." in name):
        assert (shell.folder / name).read_bytes() == (shell.folder / f"whole.{name}").read_bytes()
    assert (shell.folder / f"{arguments[1]}.manifest.json").exists()


def test_following_to_standard_output_shows_rows_as_they_end(shell: Shell) -> None:
    job = shell.submit(text=lines(40))["job_id"]
    following = follower(shell, job)
    slow = shell.fake("--seconds-per-row 1", "--max-num-seqs", "1")
    assert following.stdout
    first = following.stdout.readline()
    assert json.loads(first)["response"]
    assert shell.status(job)["state"] == "running"
    slow.terminate()
    shell.fake()
    rest, said = following.communicate(timeout=60)
    assert (following.returncode, said.splitlines()[-1]) == (
        0,
        "40 of 40 rows, 0 of them failed, written to standard output",
    )
    assert first + rest == shell.producer("results", job)


def test_a_part_of_another_job_is_refused_as_it_is(shell: Shell) -> None:
    shell.fake()
    one, two = (shell.submit(text=lines(20, tag))["job_id"] for tag in "ab")
    for job in (one, two):
        shell.producer("watch", job)
    part = shell.folder / "out.jsonl.part"
    for text in (shell.producer("results", one)[:-20], "my notes"):
        part.write_text(text)
        ended = shell.run("producer", "results", two, "--follow", "-o", "out.jsonl")
        assert (ended.returncode, "out.jsonl.part has other lines than the job" in ended.stderr) == (2, True)
        assert part.read_text() == text
        assert not (shell.folder / "out.jsonl").exists()
    part.unlink()
    assert shell.run("producer", "results", two, "--follow", "-o", "out.jsonl").returncode == 0


def test_a_job_that_has_not_ended_is_refused(shell: Shell) -> None:
    job = shell.submit(text=lines(3))["job_id"]
    words = f"job {job} is queued, 0 of its 3 rows have ended: `--partial` writes what there is, `--follow` waits"
    refused(shell, job, "-o", "out.jsonl", words=words)
    assert not (shell.folder / "out.jsonl").exists()
    said = shell.run("producer", "results", job, "-o", "out.jsonl", "--partial").stderr
    assert said == "0 of 3 rows, 0 of them failed, written to out.jsonl (the job is queued, more will come)\n"


def test_a_result_that_is_missing_is_said_and_no_file_appears(shell: Shell) -> None:
    job = ended_job(shell)
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as redis:
        redis.hdel(key("results", job), "5", "50")
    for arguments in ((), ("--follow",)):
        refused(shell, job, "-o", "out.jsonl", "--errors", "bad.jsonl", *arguments, words="2 are missing", code=1)
        assert names(shell) <= {"out.jsonl.part"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--follow", "--partial"), "--partial and --follow exclude each other"),
        (("--follow", "--consume", "-o", "f"), "--follow and --consume exclude each other"),
        (("--follow", "--order", "input"), "--follow writes rows as they end"),
        (("--consume", "-o", "f.parquet"), "--consume appends lines in OpenAI's shape"),
        (("--consume", "-o", "f.gz"), "--consume appends lines in OpenAI's shape"),
        (("--consume", "-o", "f", "--errors", "g"), "--consume appends lines in OpenAI's shape"),
        (("--format", "parquet"), "Parquet needs a file: -o FILE"),
        (("-o", "f.parquet.gz"), "compressed inside"),
        (("-o", "f", "--errors", "./f"), "the results go there already"),
        (("-o", "no/f"), "no/f: No such file or directory"),
        (("-o", "f", "--errors", "no/g"), "no/g: No such file or directory"),
        (("-o", "no/f", "--follow"), "No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_said_in_one_line(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    shell.producer("cancel", job := shell.submit(text=lines(3))["job_id"])
    refused(shell, job, *arguments, words=words)
    assert names(shell) == set()


def test_the_file_that_was_submitted_is_not_replaced_by_its_results(shell: Shell) -> None:
    """JOB is the file's name, so it is soon typed for -o, too."""
    (shell.folder / "rows.jsonl").write_text(lines(5))
    shell.submit("rows.jsonl")
    shell.fake()
    shell.producer("watch", "rows.jsonl")
    refused(shell, "rows.jsonl", "-o", "rows.jsonl", words="rows.jsonl is there, and no manifest says")
    refused(shell, "rows.jsonl", "--follow", "-o", "rows.jsonl", words="--overwrite replaces it")
    refused(shell, "rows.jsonl", "-o", "out.jsonl", "--errors", "-", words="--errors needs a FILE")
    assert (shell.folder / "rows.jsonl").read_text() == lines(5)
    for _ in range(2):  # what this job wrote it writes again
        shell.producer("results", "rows.jsonl", "-o", "out.jsonl")
    shell.producer("results", "rows.jsonl", "--consume", "-o", "moved.jsonl")
    refused(shell, "rows.jsonl", "-o", "other.jsonl", words="all 5 rows of job")
