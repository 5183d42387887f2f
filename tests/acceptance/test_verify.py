"""`worker verify`: a user's own check of a job, here on made-up text (`test_verify_real.py` has a model)."""

import json
from typing import Any

from redis import Redis
from shell import Shell

from producer.record.keys import key
from producer.server.embedded import EmbeddedRedis

ROWS = [
    *({"custom_id": f"g{n}", "prompt": f"say {n}", "temperature": 0} for n in range(20)),
    *({"custom_id": f"s{n}", "messages": [{"role": "user", "content": f"say {n}"}], "seed": n} for n in range(5)),
    *({"custom_id": f"free{n}", "prompt": f"say {n}"} for n in range(4)),
    {"custom_id": "bad", "prompt": "boom", "temperature": 0},
]
FAKE = ("--engine", "fake")


def verify(shell: Shell, *arguments: str, code: int, engine: str = "") -> str:
    """What it printed on standard output, and the one line of an error."""
    ended = shell.run("worker", "verify", *arguments, *FAKE, f"--engine-args={engine}")
    assert ended.returncode == code, f"{ended.stdout}\n{ended.stderr}"
    assert "Traceback" not in ended.stderr
    if code > 1:
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.stdout + (ended.stderr if code > 1 else "")


def submitted(shell: Shell, rows: list[dict[str, Any]] = ROWS) -> str:
    """A file of rows, one of them broken, and the job that it is."""
    text = "".join(f"{json.dumps(row)}\n" for row in rows) + "{broken\n" + f"{' ' * (16 << 20)}x\n"
    (shell.folder / "rows.jsonl").write_text(text)
    return str(shell.submit("rows.jsonl")["job_id"])


def tamper(shell: Shell, job: str, index: int, **choice: Any) -> None:
    """Write something else into a result in Redis."""
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url, decode_responses=True) as redis:
        line = json.loads(redis.hget(key("results", job), str(index)) or "")
        line["response"]["body"]["choices"][0] |= choice
        redis.hset(key("results", job), str(index), json.dumps(line))


def test_a_job_is_verified_and_what_somebody_changes_is_found(shell: Shell) -> None:
    shell.fake("--fail-on boom")
    job = submitted(shell)
    shell.producer("watch", job, code=1)
    asked = (job, "--input", "rows.jsonl")
    said = verify(shell, *asked, code=0)
    assert "25 of 25 comparable rows of job" in said
    assert "25 identical; the same as plain decoding" in said
    assert "4 answered rows were sampled without a seed" in said
    assert "3 rows have an error in place of an answer" in said
    found = json.loads(verify(shell, *asked, "--json", "--rows", "10", code=0, engine="--die-after 4"))
    assert (found["rows"]["checked"], found["rows"]["identical"], found["same"]) == (10, 10, True)

    tamper(shell, job, 3, text="something else")
    assert "something else" in verify(shell, *asked, code=1)
    found = json.loads(verify(shell, *asked, "--json", code=1))
    assert [(one["custom_id"], one["line"], one["verdict"]) for one in found["apart"]] == [("g3", 4, "different")]


def test_answers_that_have_left_redis_are_verified_from_their_file(shell: Shell) -> None:
    shell.fake("--fail-on boom")
    job = submitted(shell)
    shell.producer("results", job, "--consume", "-o", "moved.jsonl")
    assert "--results FILE" in verify(shell, job, "--input", "rows.jsonl", code=2)
    assert "25 identical" in verify(shell, "--results", "moved.jsonl", "--input", "rows.jsonl", code=0)
    moved = (shell.folder / "moved.jsonl").read_text()
    (shell.folder / "changed.jsonl").write_text(moved.replace('"finish_reason":"length"', '"finish_reason":"stop"', 1))
    assert "finish_reason" in verify(shell, "--results", "changed.jsonl", "--input", "rows.jsonl", code=1)
    assert "no line of a results file" in verify(shell, "--results", "rows.jsonl", "--input", "rows.jsonl", code=2)
    assert "none of the answers" in verify(shell, "--results", "moved.jsonl", "--input", "moved.jsonl", code=2)


def test_a_job_s_defaults_are_its_rows_in_redis_and_from_a_file(shell: Shell) -> None:
    defaults = '{"temperature": 0, "max_tokens": 5}'
    rows = "".join(f"{json.dumps({'prompt': f'say {n}'})}\n" for n in range(6))
    (shell.folder / "rows.jsonl").write_text(rows)
    job = str(shell.submit("rows.jsonl", "--defaults", defaults)["job_id"])
    shell.fake()
    shell.producer("watch", job)
    assert "6 identical" in verify(shell, job, "--input", "rows.jsonl", code=0)
    assert "are for --results" in verify(shell, job, "--input", "rows.jsonl", "--defaults", defaults, code=2)
    shell.producer("results", job, "--consume", "-o", "moved.jsonl")
    files = ("--results", "moved.jsonl", "--input", "rows.jsonl")
    assert "all sampled without a seed" in verify(shell, *files, code=2)
    assert "cannot read nothing" in verify(shell, *files, "--defaults", "nothing", code=2)
    assert "6 identical" in verify(shell, *files, "--defaults", defaults, code=0)


def test_a_job_that_runs_is_verified_so_far(shell: Shell) -> None:
    shell.fake("--seconds-per-row 0.3", "--max-num-seqs", "1")
    job = submitted(shell)
    shell.await_done(job, 4)
    said = verify(shell, job, "--input", "rows.jsonl", code=0)
    assert f"job {job} is running" in said
    assert "the same as plain decoding" in said


def test_what_cannot_be_verified_is_refused_before_any_work(shell: Shell) -> None:
    job = submitted(shell)
    asked = (job, "--input", "rows.jsonl")
    assert "all of its 2 rows that have ended failed" in verify(shell, *asked, code=2)
    assert "there is no job" in verify(shell, "nothing", "--input", "rows.jsonl", code=2)
    shell.fake()
    shell.producer("watch", job, code=1)
    assert "model 'target'" in verify(shell, *asked, "--served-model-name", "other", code=2)
    with (shell.folder / "rows.jsonl").open("a") as file:
        file.write('{"prompt": "one more"}\n')
    assert "is not, or no longer, what was submitted" in verify(shell, *asked, code=2)
    shell.producer("redis", "stop")
    assert "Redis is not running" in verify(shell, *asked, code=3)


def test_rows_without_a_seed_alone_are_nothing_to_verify(shell: Shell) -> None:
    shell.fake()
    job = submitted(shell, [{"prompt": "x"}])
    shell.producer("watch", job, code=1)
    assert "all sampled without a seed" in verify(shell, job, "--input", "rows.jsonl", code=2)
