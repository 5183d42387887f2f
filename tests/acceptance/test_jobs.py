"""Jobs from submit to results, with the fake engine."""

import json
import re
import signal
import subprocess

import pytest
from shell import ROOT, VICUNA, Shell, assert_each_once, lines


def test_two_jobs_and_two_workers_each_row_once_and_nothing_mixed(shell: Shell) -> None:
    workers = [shell.fake("--seconds-per-row 0.05", "--max-num-seqs", "8") for _ in range(2)]
    first = shell.submit(VICUNA)
    second = shell.submit(text=lines(80, "other-"))
    assert first["job_id"] != second["job_id"]
    for job in (first, second):
        assert (job["rows"], job["invalid"]) == (80, 0)
        assert job["state"] in ("queued", "running")  # the workers are up already
        shell.producer("watch", job["job_id"])
    assert_each_once(shell.results(first["job_id"]), [f"vicuna-{n}" for n in range(1, 81)])
    assert_each_once(shell.results(second["job_id"]), [f"other-{n}" for n in range(80)])
    for job in (first, second):
        status = shell.status(job["job_id"])
        assert (status["state"], status["rows"], status["done"], status["failed"]) == ("completed", 80, 80, 0)
        assert status["completion_tokens"] > 0
    answered = [worker.metric('minedraft_rows_total{outcome="answered"}') for worker in workers]
    assert sum(answered) == 160
    assert min(answered) > 0


def test_an_answer_belongs_to_its_prompt(shell: Shell) -> None:
    shell.fake()
    jobs = [shell.submit(text=lines(40, tag)) for tag in ("a", "b")]
    alone = shell.submit("-", "--new", text=lines(40, "a"))
    for job in (*jobs, alone):
        shell.producer("watch", job["job_id"])
    texts = [[line["response"]["body"]["choices"] for line in shell.results(job["job_id"])] for job in (*jobs, alone)]
    assert texts[0] == texts[2]
    assert not [1 for a, b in zip(texts[0], texts[1], strict=True) if a == b]


def test_bad_lines_become_error_rows_and_the_count_is_kept(shell: Shell) -> None:
    file = "\n".join(
        [
            '{"prompt": "fine"}',
            "",
            "{broken",
            '{"custom_id": "x", "prompt": 7}',
            '{"messages": [{"role": "user", "content": "fine, too"}], "temperature": 0}',
            "\ufeff[]",
            '{"custom_id": "u\u2028", "method": "POST", "url": "/v1/embeddings", "body": {}}',
        ]
    )
    shell.fake()
    job = shell.submit(text=file)
    assert (job["rows"], job["invalid"]) == (6, 4)
    shell.producer("watch", job["job_id"], code=1)
    results = shell.results(job["job_id"])
    assert [line["custom_id"] for line in results] == ["row-1", None, "x", "row-5", None, "u\u2028"]
    assert [line["error"] and line["error"]["line"] for line in results] == [None, 3, 4, None, 6, 7]
    assert all((line["response"] is None) == bool(line["error"]) for line in results)
    status = shell.status(job["job_id"])
    assert (status["state"], status["done"], status["failed"]) == ("completed", 6, 4)


def test_rows_that_the_engine_refuses_are_error_rows(shell: Shell) -> None:
    shell.fake("--fail-every 5")
    job = shell.submit(text=lines(20))
    ended = shell.run("producer", "watch", job["job_id"])
    assert ended.returncode == 1
    assert "20/20" in ended.stderr
    results = shell.results(job["job_id"])
    assert [bool(line["error"]) for line in results] == [n % 5 == 0 for n in range(1, 21)]


def test_another_model_s_row_is_refused_and_target_is_always_right(shell: Shell) -> None:
    shell.fake("", "--served-model-name", "mine")
    rows = [{"prompt": "x", "model": model} for model in ("mine", "target", "theirs")] + [{"prompt": "x"}]
    job = shell.submit(text="\n".join(map(json.dumps, rows)))
    shell.producer("watch", job["job_id"], code=1)
    errors = [line["error"] and line["error"]["code"] for line in shell.results(job["job_id"])]
    assert errors == [None, None, "model_not_found", None]
    assert shell.status(job["job_id"])["model"] == "mine"


def test_a_job_waits_for_the_worker_of_its_model(shell: Shell) -> None:
    shell.fake("", "--served-model-name", "one")
    job = shell.submit("-", "--model", "two", text=lines(3))
    other = shell.submit("-", "--model", "one", text=lines(3))
    shell.producer("watch", other["job_id"])
    assert shell.status(job["job_id"])["done"] == 0
    shell.fake("", "--served-model-name", "two")
    shell.producer("watch", job["job_id"])
    refused = shell.run("producer", "submit", "-", text=lines(4))
    assert refused.returncode == 2
    assert re.search(r"--model.*one, two", refused.stderr)


def test_the_same_rows_again_resume_the_job(shell: Shell) -> None:
    shell.fake()
    first = shell.submit(VICUNA)
    again = shell.submit(VICUNA)
    assert (again["job_id"], again["resumed"], first["resumed"]) == (first["job_id"], True, False)
    assert shell.submit(VICUNA, "--new")["job_id"] != first["job_id"]


def test_results_can_be_read_while_the_job_runs_and_in_both_orders(shell: Shell) -> None:
    slow = shell.fake("--seconds-per-row 1", "--max-num-seqs", "2")
    job = shell.submit(text=lines(60))["job_id"]
    shell.await_done(job, 5)
    part = shell.results(job, "--partial")
    assert 5 <= len(part) < 60
    slow.terminate()
    shell.fake()
    shell.producer("watch", job)
    ids = [str(n) for n in range(60)]
    assert_each_once(shell.results(job), ids)
    done = [line["custom_id"] for line in shell.results(job, order="done")]
    assert sorted(done, key=int) == ids
    assert set(done[: len(part)]) == {line["custom_id"] for line in part}, "what was there stays in front"
    assert len(shell.producer("results", job).splitlines()) == 60


def test_a_dead_engine_is_replaced_and_its_rows_run_again(shell: Shell) -> None:
    worker = shell.fake("--seconds-per-row 0.01 --die-after 30")
    job = shell.submit(text=lines(50))["job_id"]
    shell.producer("watch", job)
    assert_each_once(shell.results(job), [str(n) for n in range(50)])
    assert worker.metric("minedraft_engine_restarts_total") >= 1


def test_sigterm_drains_and_gives_back(shell: Shell) -> None:
    worker = shell.fake("--seconds-per-row 1", "--max-num-seqs", "4")
    job = shell.submit(text=lines(40))["job_id"]
    shell.await_done(job, 4)
    assert worker.terminate(10) == 0
    done = shell.status(job)["done"]
    assert 4 <= done < 40
    assert "Traceback" not in worker.text()
    shell.fake()
    shell.producer("watch", job)
    assert_each_once(shell.results(job), [str(n) for n in range(40)])


def test_a_second_sigterm_does_not_wait(shell: Shell) -> None:
    worker = shell.fake("--seconds-per-row 600")
    shell.submit(text=lines(4))
    while worker.metric("minedraft_rows_in_flight") < 4:
        assert worker.process.poll() is None
    worker.process.terminate()
    worker.await_log("draining")
    assert worker.terminate(5) == 0
    assert "given back" in worker.text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_submission_of_standard_input_that_is_interrupted_leaves_nothing(
    shell: Shell, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        ["producer", "submit", "-"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    process.stdin.write(lines(50_000).encode())  # more than is gathered before it is sent, and then no end of file
    process.stdin.flush()
    while not json.loads(shell.producer("status", "--json")):
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(10) == 130
    assert process.stderr
    assert b"Traceback" not in process.stderr.read()
    assert shell.producer("status", "--json").strip() == "[]"


def test_a_worker_starts_the_embedded_redis_and_leaves_it_running(shell: Shell) -> None:
    shell.producer("redis", "stop")
    shell.producer("redis", "status", code=3)
    worker = shell.fake()
    assert worker.terminate() == 0
    status = json.loads(shell.producer("redis", "status", "--json"))
    assert status["running"]


def test_the_readme_shows_the_help_that_there_is(shell: Shell) -> None:
    readme = (ROOT / "README.md").read_text()
    for program in ("producer", "worker"):
        words = shell.run(program, "--help").stdout
        for command in re.findall(rf"(?:\$ |`){program} (\w+)", readme):
            assert command in words, f"{program} {command}"
