"""vLLM behind the queue: two workers on a tiny model, shared by the tests in order, then broken one after the other."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell, Worker, assert_each_once, shell_in

from worker.lab.tiny import build_tiny_model

TOKENS = 24


def rows(count: int, tag: str, tokens: int = TOKENS) -> str:
    parameters = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    return "\n".join(
        json.dumps({"custom_id": f"{tag}{n}", "messages": [{"role": "user", "content": f"Say {n * n}."}], **parameters})
        for n in range(count)
    )


def ids(count: int, tag: str) -> list[str]:
    return [f"{tag}{n}" for n in range(count)]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, list[Worker]]]:
    folder = tmp_path_factory.mktemp("real")
    model = build_tiny_model(folder / "tiny")
    with shell_in(folder) as shell:
        flags = (
            "--mode",
            "ar",
            "--model",
            str(model),
            "--served-model-name",
            "tiny",
            "--engine-args=--max-model-len 512",
        )
        workers = [shell.worker(*flags) for _ in range(2)]
        for worker in workers:
            worker.ready(240)
        yield shell, workers


def test_two_jobs_at_once_each_row_once_and_nothing_mixed(stand: tuple[Shell, list[Worker]]) -> None:
    shell, workers = stand
    jobs = [shell.submit(text=rows(80, tag))["job_id"] for tag in ("a", "b")]
    for job in jobs:
        shell.producer("watch", job)
    texts = []
    for job, tag in zip(jobs, "ab", strict=True):
        results = shell.results(job)
        assert_each_once(results, ids(80, tag))
        bodies = [line["response"]["body"] for line in results]
        assert all(body["usage"]["completion_tokens"] == TOKENS for body in bodies)
        texts.append([body["choices"][0]["message"]["content"] for body in bodies])
        status = shell.status(job)
        assert status["completion_tokens"] == 80 * TOKENS
        assert status["model"] == "tiny"
    assert texts[0] == texts[1], "the same prompts, greedy, in whatever batches they ran"
    assert len(set(texts[0])) > 40
    assert min(worker.metric('minedraft_rows_total{outcome="answered"}') for worker in workers) > 0


def test_our_metrics_stand_beside_vllm_s(stand: tuple[Shell, list[Worker]]) -> None:
    shell, workers = stand
    page = workers[0].metrics()
    for name in (
        'minedraft_rows_total{outcome="failed"}',
        'minedraft_tokens_total{kind="completion"}',
        'minedraft_shard_claims_total{result="claimed"}',
        "minedraft_queue_shards",
        "minedraft_result_write_seconds_count",
        "minedraft_engine_up 1.0",
        "vllm:generation_tokens_total",
        "vllm:num_requests_running",
    ):
        assert name in page, name
    tokens = [worker.metric('minedraft_tokens_total{kind="completion"}') for worker in workers]
    assert sum(tokens) == sum(job["completion_tokens"] for job in json.loads(shell.producer("status", "--json")))


def test_rows_that_vllm_refuses_are_error_rows(stand: tuple[Shell, list[Worker]]) -> None:
    shell, _ = stand
    bad = [
        {"prompt": "word " * 2000},
        {"prompt": "x", "max_tokens": 0, "temperature": -1},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": "many"},
        {"messages": [{"role": "user", "content": "x"}], "no_such_parameter": 1},
        {"prompt": "x", "model": "other"},
        {"prompt": "x", "seed": 7, "max_tokens": 3},
    ]
    job = shell.submit(text="\n".join(map(json.dumps, bad)))["job_id"]
    shell.producer("watch", job, code=1)
    results = shell.results(job)
    assert [bool(line["error"]) for line in results] == [True] * 5 + [False]
    assert [line["error"]["line"] for line in results[:5]] == [1, 2, 3, 4, 5]
    assert "no_such_parameter" in results[3]["error"]["message"]


def test_max_tokens_missing_means_up_to_the_context(stand: tuple[Shell, list[Worker]]) -> None:
    shell, _ = stand
    job = shell.submit(text=json.dumps({"prompt": "x", "ignore_eos": True, "temperature": 0}))["job_id"]
    shell.producer("watch", job)
    usage = shell.results(job)[0]["response"]["body"]["usage"]
    assert usage["total_tokens"] == 512


@pytest.mark.full
def test_kill_9_of_a_worker_leaves_its_rows_to_the_other(stand: tuple[Shell, list[Worker]]) -> None:
    shell, (victim, other) = stand
    job = shell.submit(text=rows(160, "k", tokens=200))["job_id"]
    shell.await_done(job, 20, 60)
    engine = _engine_core(victim)
    victim.kill()
    assert shell.status(job)["state"] == "running"
    shell.producer("watch", job)
    assert_each_once(shell.results(job), ids(160, "k"))
    assert other.metric("minedraft_shards_reaped_total") >= 1
    assert not Path(f"/proc/{engine}").exists(), "its engine ended with it"


@pytest.mark.full
def test_kill_9_of_the_engine_restarts_it_and_its_rows_run_again(stand: tuple[Shell, list[Worker]]) -> None:
    shell, (_, worker) = stand
    job = shell.submit(text=rows(400, "e", tokens=200))["job_id"]
    shell.await_done(job, 4, 60)
    os.kill(_engine_core(worker), signal.SIGKILL)
    assert shell.status(job)["done"] < 400
    ended = shell.run("producer", "watch", job, seconds=240)
    assert ended.returncode == 0, ended.stderr
    assert_each_once(shell.results(job), ids(400, "e"))
    assert worker.metric("minedraft_engine_restarts_total") == 1
    assert worker.metric('minedraft_rows_total{outcome="failed"}') <= 5


def test_sigterm_ends_the_worker_and_all_its_processes(stand: tuple[Shell, list[Worker]]) -> None:
    _, (_, worker) = stand
    children = _children(worker.process.pid)
    assert children
    assert worker.terminate(60) == 0
    deadline = time.monotonic() + 5  # Python's own resource tracker ends a moment after its owner
    while left := [pid for pid in children if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, [Path(f"/proc/{pid}/cmdline").read_text() for pid in left]
        time.sleep(0.1)
    assert "Traceback" not in worker.text()


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    direct = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [int(child) for child in direct] + [grand for child in direct for grand in _children(int(child))]


def _engine_core(worker: Worker) -> int:
    """The process id of the worker's vLLM engine."""
    for pid in _children(worker.process.pid):
        if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid
    raise AssertionError("the worker has no engine process")
