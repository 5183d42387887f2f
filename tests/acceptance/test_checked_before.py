"""What `producer submit` finds out before a job is made: `--dry-run`, `minedraft.toml`, flags that make no sense."""

import json

import pytest
from shell import Shell, lines

FILE = (
    '{"prompt": "a", "max_tokens": 3}\n{"prompt": "b", "temprature": 1}\n'
    '{"messages": [{"role": "user", "content": "c"}], "temperature": "hot"}\n'
)


def test_a_dry_run_needs_no_redis_and_says_what_submitting_would(shell: Shell) -> None:
    (shell.folder / "rows.jsonl").write_text(FILE)
    ended = shell.run("producer", "submit", "rows.jsonl", "--dry-run")
    assert (ended.returncode, ended.stdout) == (1, "")
    told = ended.stderr.splitlines()
    assert told[0].startswith('rows.jsonl:2: unknown_parameter: /v1/completions has no parameter "temprature"; did you')
    assert told[1].startswith('rows.jsonl:3: invalid_request: "temperature" must be a number from 0 to 2, not "hot"')
    found = json.loads(shell.producer("submit", "-", "--dry-run", "--json", text=FILE, code=1))
    shell.producer("redis", "start")
    job = shell.submit("rows.jsonl")
    assert (job["rows"], job["invalid"]) == (found["rows"], found["invalid"]) == (3, 2)
    shell.fake()
    shell.producer("watch", job["job_id"], code=1)
    errors = [line["error"] for line in shell.results(job["job_id"]) if line["error"]]
    assert [(error["line"], error["code"], error["message"]) for error in errors] == [
        (error["line"], error["code"], error["message"]) for error in found["errors"]
    ]


def test_a_table_in_the_working_directory_says_what_flags_leave_open(shell: Shell) -> None:
    (shell.folder / "minedraft.toml").write_text(
        'log_level = "info"\n[submit]\npriority = 7\nmax_error_rate = 0.5\n'
        "[submit.defaults]\nmax_tokens = 4\nseed = 1\n"
    )
    shell.fake()  # reads the rest of the same file
    job = shell.submit("-", "--set", "max_tokens=2", text=lines(20))
    assert shell.status(job["job_id"])["priority"] == 7
    shell.producer("watch", job["job_id"])
    texts = [line["response"]["body"]["usage"]["completion_tokens"] for line in shell.results(job["job_id"])]
    assert texts == [2] * 20
    low = shell.submit("-", "--priority", "1", "--new", text=lines(20))
    assert shell.status(low["job_id"])["priority"] == 1


def test_following_watches_the_job_to_its_end(shell: Shell) -> None:
    shell.producer("redis", "start")
    shell.fake()
    ended = shell.run("producer", "submit", "-", "--follow", text=lines(20))
    assert ended.returncode == 0
    job = ended.stdout.strip()
    assert f"{job}: completed, 20/20 rows, 0 failed" in ended.stderr
    failing = shell.run("producer", "submit", "-", "--follow", text=lines(3) + "{\n")
    assert failing.returncode == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--set", "maxtokens=3"), '--set: rows have no parameter "maxtokens"; did you mean "max_tokens"?'),
        (("--defaults", '{"temperature": 3}'), '--defaults: "temperature" must be a number from 0 to 2, not 3'),
        (("--truncate-prompts", "0"), "--truncate-prompts: 0 tokens are none"),
        (("--on-duplicate", "ignore"), "--on-duplicate: 'ignore' is neither refuse nor error-row"),
        (("--config", "none.toml"), "--config: there is no file none.toml"),
        (("--append", "x", "--priority", "3"), "--append: the job keeps what it has: leave --priority out"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_flags_that_cannot_be_are_refused_before_anything_is_read(
    shell: Shell, flags: tuple[str, ...], words: str, dry: tuple[str, ...]
) -> None:
    ended = shell.run("producer", "submit", "-", *flags, *dry, text="x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert words in ended.stderr
