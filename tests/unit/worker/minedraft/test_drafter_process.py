"""How a drafter's process is asked and ended, with queues that do as they are told."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from vllm.config import CUDAGraphMode
from vllm.v1.executor.multiproc_executor import WorkerProc

from worker.minedraft import classes, drafter_process, names
from worker.minedraft.drafter_process import DrafterProcess, of_one_rank
from worker.minedraft.names import RankDied, ended

#: How long a call may take (seconds); more than any test.
LONG_S = 60.0
SUCCESS, FAILURE = WorkerProc.ResponseStatus.SUCCESS, WorkerProc.ResponseStatus.FAILURE


class Queue:
    """Lets so many tries fail before one succeeds.

    Args:
        replies: what is read from it, in order.
        busy: how many tries time out first.
    """

    def __init__(self, *replies: object, busy: float = 0) -> None:
        self.replies, self.busy = list(replies), busy
        self.tries = 0
        self.written: list[object] = []
        self.given_back = False
        self.removed = 0
        self.buffer = Thing(shared_memory=Thing(unlink=self._unlink))

    def enqueue(self, message: object, timeout: float) -> None:
        self._try(timeout)
        self.written.append(message)

    def dequeue(self, timeout: float) -> object:
        self._try(timeout)
        return self.replies.pop(0)

    def shutdown(self) -> None:
        self.given_back = True

    def _unlink(self) -> None:
        self.removed += 1
        raise FileNotFoundError("the process has removed it")

    def _try(self, timeout: float) -> None:
        assert timeout > 0
        self.tries += 1
        if self.tries <= self.busy:
            raise TimeoutError


class Proc:
    """The process.

    Args:
        looks: how many times it is still seen alive.
    """

    name = "minedraft::drafter"

    def __init__(self, looks: float) -> None:
        self.looks, self.exitcode = looks, -9
        self.did: list[str] = []

    def alive(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def terminate(self) -> None:
        self.did.append("terminate")

    def kill(self) -> None:
        self.did.append("kill")

    def join(self, timeout: float | None = None) -> None:
        self.did.append("join" if timeout is None else "wait")


class Pipe:
    closed = 0

    def close(self) -> None:
        self.closed += 1


def drafter(calls: Queue, replies: Queue, looks: float = float("inf")) -> Any:
    """A process that is up.

    Args:
        calls: to it.
        replies: from it.
        looks: how many times it is still seen alive.
    """
    made: Any = DrafterProcess.__new__(DrafterProcess)
    made.proc = Proc(looks)
    made.alive = made.proc.alive
    made._calls = calls
    made._deadline_s = LONG_S
    made._starting = Thing(death_writer=Pipe())
    made.handle = Thing(worker_response_mq=replies, death_writer=Pipe())
    return made


@pytest.mark.parametrize("ends", [True, False])
def test_who_ends_while_it_starts_is_told_apart_from_who_fails(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise EOFError("see the stack trace")

    monkeypatch.setattr(WorkerProc, "wait_for_ready", fail)
    monkeypatch.setattr(names, "REAP_S", 0.01)
    it = drafter(Queue(), Queue())
    it.proc.sentinel, theirs = os.pipe()
    if ends:
        os.close(theirs)
    with pytest.raises(RankDied if ends else EOFError, match="killed by signal 9" if ends else "stack trace"):
        it.ready()


@pytest.mark.parametrize(("replies", "who"), [(True, None), (False, -1)])
def test_a_call_says_whether_it_is_replied_to(replies: bool, who: int | None) -> None:
    calls = Queue()
    drafter(calls, Queue()).call("load", (1,), {"a": 2}, replies=replies)
    assert calls.written == [("load", (1,), {"a": 2}, who)]


def test_a_full_queue_is_waited_for() -> None:
    calls = Queue(busy=3)
    drafter(calls, Queue()).call("step", (), {}, replies=False)
    assert calls.tries == 4
    assert len(calls.written) == 1


def test_while_its_queue_has_room_nobody_looks_whether_it_lives() -> None:
    """That would be a system call in every step."""
    calls = Queue()
    it = drafter(calls, Queue())
    it.alive = lambda: pytest.fail("it is looked at")
    it.call("step", (), {}, replies=False)
    assert calls.tries == 1


@pytest.mark.parametrize("looks", [0, 3])
def test_the_full_queue_of_one_that_ends_is_not_waited_for(looks: int) -> None:
    calls = Queue(busy=float("inf"))
    drafter(calls, Queue(), looks).call("step", (), {}, replies=False)
    assert calls.tries == looks + 1
    assert calls.written == []


def test_a_reply_is_waited_for_while_it_lives() -> None:
    replies = Queue((SUCCESS, 42), busy=3)
    assert drafter(Queue(), replies).reply() == 42
    assert replies.tries == 4


def test_what_fails_in_it_fails() -> None:
    with pytest.raises(RuntimeError, match="the drafter failed: no memory"):
        drafter(Queue(), Queue((FAILURE, "no memory"))).reply()


def test_one_that_ends_owes_no_reply() -> None:
    asked = drafter(Queue(), Queue(busy=float("inf")), looks=2)
    with pytest.raises(RankDied, match="minedraft::drafter was killed by signal 9"):
        asked.reply()
    assert asked.proc.did == ["wait"], "its exit code comes a moment after its death"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second passes each time somebody looks at it."""
    halves = count()
    monkeypatch.setattr(drafter_process, "time", Thing(monotonic=lambda: next(halves) / 2))


def test_a_reply_may_take_no_longer_than_is_said(clock: None) -> None:
    replies = Queue((SUCCESS, "late"), busy=100)
    with pytest.raises(RankDied, match="minedraft::drafter does not answer"):
        drafter(Queue(), replies).reply(timeout=2)
    assert replies.tries == 5, "after 0.5, 1, 1.5, 2 and 2.5 s"


def test_one_that_lives_and_takes_no_calls_is_not_waited_for_for_ever(clock: None) -> None:
    calls = Queue(busy=1000)
    it = drafter(calls, Queue())
    it._deadline_s = 2
    with pytest.raises(RankDied, match="minedraft::drafter takes no calls"):
        it.call("step", (), {}, replies=False)
    assert calls.tries == 5, "after 0.5, 1, 1.5, 2 and 2.5 s"
    assert calls.written == []


def test_a_reply_that_comes_in_time_is_taken(clock: None) -> None:
    assert drafter(Queue(), Queue((SUCCESS, 42), busy=4)).reply(timeout=2) == 42


def test_of_one_that_ends_before_its_time_is_over_it_is_said_how(clock: None) -> None:
    with pytest.raises(RankDied, match="was killed by signal 9"):
        drafter(Queue(), Queue(busy=float("inf")), looks=1).reply(timeout=100)


def test_where_no_time_is_said_a_reply_may_take_any(clock: None) -> None:
    assert drafter(Queue(), Queue((SUCCESS, 42), busy=500)).reply() == 42


def test_what_it_replied_before_it_ended_counts() -> None:
    assert drafter(Queue(), Queue((SUCCESS, 42)), looks=0).reply() == 42


def test_one_that_does_not_end_when_told_is_killed_and_all_is_given_back() -> None:
    calls, replies = Queue(), Queue()
    it = drafter(calls, replies)
    pipes = [it._starting.death_writer, it.handle.death_writer]
    it.end()
    it.end()
    assert it.proc.did[:4] == ["terminate", "wait", "kill", "join"]
    assert calls.given_back
    assert replies.given_back
    assert replies.removed == 1, "which a process that was killed has not done"
    assert [pipe.closed for pipe in pipes] == [1, 1]
    assert (it._calls, it.handle.worker_response_mq) == (None, None), "shared memory goes with the last reference"


def test_one_that_is_not_up_yet_is_ended_too() -> None:
    calls = Queue()
    it = drafter(calls, Queue())
    it.handle = None
    it.end()
    assert it.proc.did == ["terminate", "wait", "kill", "join"]
    assert calls.given_back


def test_it_is_started_on_its_devices_as_the_only_rank_of_its_own_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ["anywhere"]
    started: list[tuple[str, dict[str, Any]]] = []

    @contextmanager
    def chosen() -> Iterator[None]:
        where.append("its own cores")
        yield
        where.pop()

    def start(**fields: Any) -> Thing:
        started.append((where[-1], fields))
        return Thing(proc="its process", death_writer=None)

    calls = Thing(export_handle=lambda: "its calls")
    monkeypatch.setattr(drafter_process, "MessageQueue", lambda *_, **__: calls)
    monkeypatch.setattr(WorkerProc, "make_worker_process", start)
    own, devices = Thing(), Thing(chosen=chosen)
    made = DrafterProcess(own, devices, LONG_S)  # type: ignore[arg-type]
    ((there, fields),) = started
    assert there == "its own cores"
    assert fields["vllm_config"] is own
    assert (fields["rank"], fields["local_rank"], fields["is_driver_worker"]) == (0, 0, True)
    assert fields["input_shm_handle"] == "its calls"
    assert (made.proc, made.handle, where) == ("its process", None, ["anywhere"])


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, "x was killed by signal 9"), (1, "x ended with exit code 1"), (0, "x ended with exit code 0")],
)
def test_how_a_process_ended_is_said_in_words(code: int, words: str) -> None:
    assert ended("x", code) == words


def parallel() -> Thing:
    """Of one of four ranks of the second one of two engines."""
    return Thing(
        tensor_parallel_size=4,
        world_size=4,
        rank=3,
        worker_cls=classes.VERIFIER,
        data_parallel_size=2,
        data_parallel_size_local=2,
        data_parallel_rank=1,
        data_parallel_rank_local=1,
        data_parallel_index=1,
        assigned_physical_gpu_ids=[0, 1, 2, 3, 4],
        numa_bind=True,
    )


def engine_config(device_type: str, *, v2: bool) -> Any:
    """What an executor has, of a `VllmConfig`."""
    return Thing(
        parallel_config=parallel(),
        speculative_config=Thing(target_parallel_config=parallel(), draft_parallel_config=parallel()),
        compilation_config=Thing(
            cudagraph_mode=CUDAGraphMode.FULL, max_cudagraph_capture_size=2, cudagraph_capture_sizes=[1, 2]
        ),
        cache_config=Thing(gpu_memory_utilization=0.9),
        device_config=Thing(device_type=device_type),
        use_v2_model_runner=v2,
    )


def test_the_drafters_configuration_is_that_of_a_world_of_one() -> None:
    theirs = engine_config("cpu", v2=False)
    own = of_one_rank(theirs, classes.DRAFTER, devices=(2, 3))
    spec = own.speculative_config
    for each in (own.parallel_config, spec.target_parallel_config, spec.draft_parallel_config):
        assert (each.tensor_parallel_size, each.world_size, each.rank) == (1, 1, 0)
    assert own.parallel_config.worker_cls == classes.DRAFTER
    assert theirs.parallel_config == parallel(), "the verifiers' own is not touched"
    for parallel_config in (own.parallel_config, theirs.parallel_config):
        for name in ("tensor_parallel_size", "world_size", "rank", "worker_cls"):
            delattr(parallel_config, name)
    for config in (own, theirs):
        del config.speculative_config
    assert own == theirs, "nothing else"


def test_on_vllms_v2_runner_it_is_of_no_other_engine_and_has_no_graphs() -> None:
    theirs = engine_config("cpu", v2=True)
    own = of_one_rank(theirs, "its.Drafter", devices=(2, 3))
    for each in (own.parallel_config, own.speculative_config.draft_parallel_config):
        assert (each.tensor_parallel_size, each.world_size, each.rank) == (1, 1, 0)
    mine = own.parallel_config
    assert (mine.data_parallel_size, mine.data_parallel_size_local) == (1, 1)
    assert (mine.data_parallel_rank, mine.data_parallel_rank_local, mine.data_parallel_index) == (0, 0, 0)
    assert not mine.numa_bind
    graphs = own.compilation_config
    assert (graphs.cudagraph_mode, graphs.cudagraph_capture_sizes) == (CUDAGraphMode.NONE, [])
    assert graphs.max_cudagraph_capture_size == 0
    assert theirs == engine_config("cpu", v2=True), "the verifiers have theirs"


def test_a_drafter_on_a_gpu_is_told_which() -> None:
    theirs = engine_config("cuda", v2=True)
    own = of_one_rank(theirs, "its.Drafter", devices=(7,))
    assert own.parallel_config.assigned_physical_gpu_ids == [7]
    assert theirs.parallel_config.assigned_physical_gpu_ids == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="unpack"):
        of_one_rank(theirs, "its.Drafter")


@pytest.mark.parametrize(("asked", "share"), [(None, 0.9), (0.3, 0.3)])
def test_a_drafter_may_use_as_much_of_its_gpu_as_a_verifier_unless_asked(asked: float | None, share: float) -> None:
    theirs = engine_config("cuda", v2=True)
    assert of_one_rank(theirs, "its.Drafter", (7,), asked).cache_config.gpu_memory_utilization == share
    assert theirs.cache_config.gpu_memory_utilization == 0.9
