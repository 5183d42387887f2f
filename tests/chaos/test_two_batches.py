"""The two-batch engine broken mid-job, as a user runs it: each row once, the same texts, nothing left behind.

The first tests share one worker, in order.
"""

import json
import os
import pty
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from leftovers import Leftovers
from ranks import (
    DIED,
    DRAFTER,
    ENGINE,
    JOINED,
    READY,
    await_born,
    await_more,
    await_true,
    footprint,
    ranks,
    strike,
    verifier,
)
from shell import Shell, Worker, assert_each_once, shell_in
from transformers import AutoTokenizer, LlamaForCausalLM

from worker.lab.pairs import build_pair

ROWS = 60
#: What a worker logs when it replaces an engine, one that was still starting as well.
RESTART = "another one starts in"
ANSWERED = 'minedraft_rows_total{outcome="answered"}'
DRAFTED = 'minedraft_drafted_tokens_total{position="1"}'
#: 16 blocks of 128 tokens, where 16 rows can need 48: some are preempted.
SMALL_CACHE = "0.001"
CORES = sorted(os.sched_getaffinity(0))
#: Not what a worker would choose by itself.
VERIFIER_CORE, DRAFTER_CORE = CORES[-1], CORES[0]


def job_rows(tag: str, seed: int = 0, least: int = 4, most: int = 300) -> str:
    """Greedy rows of `least` to `most` tokens; the same ones, but for their ids, for each tag."""
    dice = random.Random(seed)
    return "\n".join(
        json.dumps(
            {
                "custom_id": f"{tag}{n}",
                "prompt": f"{dice.choice(('Say', 'Count', 'Tell me of'))} {n * n}",
                "max_tokens": dice.randint(least, most),
                "temperature": 0,
                "ignore_eos": True,
            }
        )
        for n in range(ROWS)
    )


def ids(tag: str) -> list[str]:
    return [f"{tag}{n}" for n in range(ROWS)]


def texts(results: list[dict[str, Any]]) -> list[str]:
    return [line["response"]["body"]["choices"][0]["text"] for line in results]


def finished_texts(shell: Shell, job: str, tag: str) -> list[str]:
    """The texts of a job, once it is done; each row has been answered once."""
    ended = shell.run("producer", "watch", job, seconds=240)
    assert ended.returncode == 0, ended.stderr
    results = shell.results(job)
    assert_each_once(results, ids(tag))
    assert shell.status(job)["done"] == ROWS
    return texts(results)


def await_answered(worker: Worker, rows: float) -> None:
    """Wait until the worker has had so many rows answered, in all."""
    await_true(lambda: worker.metric(ANSWERED) >= rows, 60, worker.text)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_pair(tmp_path_factory.mktemp("pair"))


def flags(pair: tuple[Path, Path]) -> tuple[str, ...]:
    target, draft = map(str, pair)
    models = ("--model", target, "--draft-model", draft, "--served-model-name", "tiny")
    return (*models, "--num-speculative-tokens", "3", "--metrics-port", "0", "--engine-args=--max-model-len 512")


class Stand(NamedTuple):
    """A worker at work."""

    shell: Shell
    worker: Worker
    footprint: Leftovers
    undisturbed: list[str]
    trace: Path


@pytest.fixture(scope="module")
def stand(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A worker, what it answers when left in peace, and what `worker trace` saw meanwhile."""
    with shell_in(tmp_path_factory.mktemp("stand")) as shell, footprint(shell) as left:
        worker = shell.worker(
            *flags(pair),
            *("--verifier-cpus", str(VERIFIER_CORE), "--drafter-cpus", str(DRAFTER_CORE)),
            *("--drafter-kv-cache-gib", SMALL_CACHE),
        )
        worker.ready(240)
        job = shell.submit(text=job_rows("calm"))["job_id"]
        traced = shell.run("worker", "trace", "--seconds", "3", "--json", "trace.json", "--png", "trace.png")
        assert traced.returncode == 0, traced.stderr
        assert traced.stdout.split() == ["trace.json", "trace.png"]
        yield Stand(shell, worker, left, finished_texts(shell, job, "calm"), shell.folder / "trace.json")


def test_processes_have_names_and_compute_where_they_were_told(stand: Stand) -> None:
    found = ranks(stand.worker.process.pid)
    assert set(found) == {ENGINE, DRAFTER, verifier(0)}
    assert busiest_thread_cores(found[DRAFTER]) == {DRAFTER_CORE}
    assert busiest_thread_cores(found[verifier(0)]) == {VERIFIER_CORE}


def test_a_running_engine_can_be_watched(stand: Stand) -> None:
    drawn = json.loads(stand.trace.read_text())
    assert not drawn["otherData"]["virtual"]
    names = {event["name"].split(" #")[0] for event in drawn["traceEvents"]}
    assert {"verify A", "verify B", "draft A", "draft B", "schedule A", "schedule B"} <= names
    assert stand.trace.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def busiest_thread_cores(pid: int) -> set[int]:
    """Where the thread that has computed most may run."""
    busiest = max(psutil.Process(pid).threads(), key=lambda thread: thread.user_time)
    return os.sched_getaffinity(busiest.id)


def test_a_small_cache_of_the_drafter_is_said_and_rows_are_right(stand: Stand, pair: tuple[Path, Path]) -> None:
    (warning,) = [line for line in stand.worker.text().splitlines() if "limited by" in line]
    assert "16 blocks, limited by minedraft::drafter" in warning
    assert stand.worker.metric('vllm:num_preemptions_total{engine="0",model_name="tiny"}') > 0
    model, tokenizer = LlamaForCausalLM.from_pretrained(pair[0]), AutoTokenizer.from_pretrained(pair[0])
    for line, text in list(zip(map(json.loads, job_rows("calm").splitlines()), stand.undisturbed, strict=True))[:6]:
        prompt = tokenizer(line["prompt"], return_tensors="pt").input_ids
        most = line["max_tokens"]
        whole = model.generate(prompt, min_new_tokens=most, max_new_tokens=most, do_sample=False, eos_token_id=None)
        plain = tokenizer.decode(whole[0, prompt.shape[1] :], skip_special_tokens=True)
        assert text == plain.rstrip("\N{REPLACEMENT CHARACTER}")  # vLLM leaves out a character that is cut off


def test_a_drafter_killed_mid_job_is_replaced_and_no_row_notices(stand: Stand) -> None:
    shell, worker = stand.shell, stand.worker
    before, there = worker.metric(ANSWERED), ranks(worker.process.pid)
    assert drafters(worker) == (1, 0, 0)
    job = shell.submit(text=job_rows("lone"))["job_id"]
    await_answered(worker, before + 8)
    strike(worker, DRAFTER)
    assert worker.metric(ANSWERED) < before + ROWS
    await_true(lambda: drafters(worker) == (0, 1, 0), 10, worker.text)
    assert finished_texts(shell, job, "lone") == stand.undisturbed
    # The next one takes part as soon as there are rows.
    await_more(worker, READY, 1, 120)
    drafted = worker.metric(DRAFTED)
    again = shell.submit(text=job_rows("pair"))["job_id"]
    assert finished_texts(shell, again, "pair") == stand.undisturbed
    assert worker.text().count(JOINED) == 1
    await_true(lambda: drafters(worker) == (1, 1, 1), 10, worker.text)
    assert worker.metric(DRAFTED) > drafted
    assert worker.metric(ANSWERED) == before + 2 * ROWS
    now = ranks(worker.process.pid)
    assert {name for name in there if there[name] != now[name]} == {DRAFTER}
    assert DIED not in worker.text()


def drafters(worker: Worker) -> tuple[float, ...]:
    """Whether the worker's engine has one; how often one was lost, and how often another one has joined."""
    return tuple(worker.metric(f"minedraft_drafter_{name}") for name in ("up", "losses_total", "joins_total"))


@pytest.mark.full
def test_each_rank_killed_in_turn_mid_job(stand: Stand) -> None:
    """The engine dies while another drafter starts."""
    shell, worker = stand.shell, stand.worker
    before = worker.metric(ANSWERED)
    job = shell.submit(text=job_rows("kill"))["job_id"]
    for name, rows in ((verifier(0), 8), (DRAFTER, 24), (ENGINE, 40)):
        await_answered(worker, before + rows)
        strike(worker, name)
        assert worker.metric(ANSWERED) < before + ROWS
    assert finished_texts(shell, job, "kill") == stand.undisturbed
    assert worker.metric(ANSWERED) == before + ROWS
    assert worker.metric("minedraft_engine_restarts_total") == 2
    assert drafters(worker) == (1, 2, 1)
    said = worker.text()
    assert "the engine died: EngineCore ended with exit code -9" in said
    for name in (DRAFTER, verifier(0)):
        assert f"{name} was killed by signal 9" in said
    assert "Traceback" not in said


def test_sigterm_drains_and_leaves_nothing(stand: Stand) -> None:
    shell, worker = stand.shell, stand.worker
    before = worker.metric(ANSWERED)
    job = shell.submit(text=job_rows("end"))["job_id"]
    await_answered(worker, before + 8)
    assert worker.terminate(60) == 0
    assert "drained" in worker.text()
    stand.footprint.assert_gone()
    status = shell.status(job)
    assert status["state"] == "running"
    assert 8 <= status["done"] < ROWS
    calm = dict(zip(ids("end"), stand.undisturbed, strict=True))
    results = shell.results(job, "--partial")
    assert texts(results) == [calm[line["custom_id"]] for line in results]
    assert "Traceback" not in worker.text()


@pytest.mark.full
@pytest.mark.parametrize(("broken", "rank"), [("draft", DRAFTER), ("target", verifier(0))])
def test_weights_that_cannot_be_read(broken: str, rank: str, shell: Shell, tmp_path: Path) -> None:
    pair = build_pair(tmp_path / "pair")
    (tmp_path / "pair" / broken / "model.safetensors").write_bytes(b"garbage")
    with footprint(shell) as left:
        worker = shell.worker(*flags(pair))
        await_more(worker, "SafetensorError", 1, 120)
        assert worker.process.wait(15) == 2
        left.assert_gone()
    said = [line for line in worker.text().splitlines() if line.startswith("worker: ")]
    assert len(said) == 1
    assert said[0].startswith(f"worker: vLLM cannot start: {rank}: SafetensorError: ")
    assert "Traceback" not in worker.text()


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seed", "verifiers"), [(0, 1), (1, 2), (2, 1)])
def test_kills_at_random_moments(pair: tuple[Path, Path], shell: Shell, seed: int, verifiers: int) -> None:
    dice = random.Random(seed)
    names = [ENGINE, DRAFTER, *map(verifier, range(verifiers))]
    parallel = ("--tensor-parallel-size", str(verifiers))
    with footprint(shell) as left:
        worker = shell.worker(*flags(pair), *parallel).ready(240)
        assert set(ranks(worker.process.pid)) == set(names)
        undisturbed = finished_texts(shell, shell.submit(text=job_rows("calm", seed))["job_id"], "calm")
        job, before = shell.submit(text=job_rows("kill", seed))["job_id"], ROWS
        victims = dice.sample([*names, "the worker"], k=len(names) + 1)
        for victim, rows in zip(victims, sorted(dice.sample(range(1, 40), k=len(victims))), strict=True):
            await_answered(worker, before + rows)
            assert worker.metric(ANSWERED) < before + ROWS
            if victim == "the worker":
                worker.kill()
                left.assert_gone(30)
                before = -shell.status(job)["done"]
                worker = shell.worker(*flags(pair), *parallel).ready(240)
            else:
                strike(worker, victim)
        assert finished_texts(shell, job, "kill") == undisturbed
        assert worker.terminate(60) == 0
        left.assert_gone()


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_kills_at_various_moments_of_the_start(pair: tuple[Path, Path], shell: Shell) -> None:
    with footprint(shell) as left:
        dead = shell.worker(*flags(pair))
        await_born(dead)
        dead.kill()
        left.assert_gone(30)
        worker = shell.worker(*flags(pair))
        moments = [(DRAFTER, 0.0), (verifier(0), 2.0), (ENGINE, 4.0), (DRAFTER, 6.0), (verifier(0), 8.0)]
        for turn, (name, wait) in enumerate(moments, 1):
            pid = await_born(worker)[name]
            time.sleep(wait)
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await_more(worker, RESTART, turn, 15)
            said = [line for line in worker.text().splitlines() if RESTART in line][-1]
            print(f"{time.monotonic() - began:.1f} s: {said}")
            assert ("EngineCore was killed" if name == ENGINE else f"{name} was killed by signal 9") in said
        worker.ready(240)
        finished_texts(shell, shell.submit(text=job_rows("late"))["job_id"], "late")
        assert worker.terminate(60) == 0
        left.assert_gone()
        assert "Traceback" not in worker.text()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_drafter_that_does_not_answer_is_given_up(pair: tuple[Path, Path], shell: Shell) -> None:
    with footprint(shell) as left:
        # A step may take as long; a message of the drafter, less.
        shell.environment["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] = "20"
        worker = shell.worker(*flags(pair)).ready(240)
        undisturbed = finished_texts(shell, shell.submit(text=job_rows("calm"))["job_id"], "calm")
        job = shell.submit(text=job_rows("stop"))["job_id"]
        await_answered(worker, ROWS + 8)
        strike(worker, DRAFTER, signal.SIGSTOP, notice=20)
        assert finished_texts(shell, job, "stop") == undisturbed
        assert DIED not in worker.text()
        assert worker.terminate(60) == 0
        left.assert_gone()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_the_second_signal_ends_all_at_once(how: str, pair: tuple[Path, Path], shell: Shell) -> None:
    with footprint(shell) as left, a_terminal() as (keyboard, terminal):
        command = ["setsid", "--ctty", "worker", "run", *flags(pair)]
        log = shell.folder / "worker.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, env=shell.environment, cwd=shell.folder, stdin=terminal, stdout=stream, stderr=stream
            )
        worker = Worker(process, log).ready(240)
        shell.workers.append(worker)
        job = shell.submit(text=job_rows("long", least=400, most=480))["job_id"]
        await_true(lambda: worker.metric("minedraft_rows_in_flight") > 0, 30, worker.text)
        for words in ("draining", "stopping at once"):
            if how == "Ctrl-C":
                os.write(keyboard, b"\x03")
            else:
                process.terminate()
            worker.await_log(words)
        began = time.monotonic()
        assert process.wait(60) == 0
        print(f"{how}: ended after {time.monotonic() - began:.1f} s")
        left.assert_gone()
        assert shell.status(job)["state"] == "running"
        assert "Traceback" not in worker.text()


@contextmanager
def a_terminal() -> Iterator[tuple[int, int]]:
    """Where keys are typed, and where a program reads them."""
    keyboard, terminal = pty.openpty()
    yield keyboard, terminal
    os.close(keyboard)
    os.close(terminal)
