"""How the executor treats its rank more, without processes."""

import os
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, WorkerProc

from worker.minedraft import classes, executor
from worker.minedraft.executor import MineDraftExecutor

SUCCESS, FAILURE = WorkerProc.ResponseStatus.SUCCESS, WorkerProc.ResponseStatus.FAILURE


class Ranks:
    """The queues of an executor with two verifiers: what it asks of whom, in order, and what the drafter replies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, object]] = []
        self.reply: tuple[object, object] = (SUCCESS, "drafter")

        def verifiers(_: Any, method: object, *rest: object) -> object:
            self.asked.append(("verifiers", (method, rest[1])))
            return "the one reply" if rest[4] is not None else ["verifier 0", "verifier 1"]

        monkeypatch.setattr(MultiprocExecutor, "collective_rpc", verifiers)
        self.executor = MineDraftExecutor.__new__(MineDraftExecutor)
        self.executor.is_failed = False
        self.executor._drafter_calls = Thing(enqueue=lambda call: self.asked.append(("drafter", call)))
        self.executor._drafter_replies = Thing(dequeue=lambda timeout: self.reply)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_where_every_rank_replies_the_drafter_replies_last(ranks: Ranks) -> None:
    replies = ranks.executor.collective_rpc("profile", args=(1,), kwargs={"a": 2})
    assert replies == ["verifier 0", "verifier 1", "drafter"]
    # The drafter is asked first: it has to be at work while vLLM waits for the verifiers.
    assert ranks.asked == [("drafter", ("profile", (1,), {"a": 2}, None)), ("verifiers", ("profile", (1,)))]


def test_where_one_rank_replies_the_drafter_does_not(ranks: Ranks) -> None:
    ranks.reply = (FAILURE, "never read")
    assert ranks.executor.collective_rpc("execute_model", non_block=True, unique_reply_rank=0) == "the one reply"
    ((who, call), _) = ranks.asked
    assert (who, call) == ("drafter", ("execute_model", (), {}, -1))


def test_the_drafter_may_get_arguments_of_its_own(ranks: Ranks) -> None:
    ranks.executor.collective_rpc("initialize", args=("theirs",), drafter_args=("its own",))
    assert ranks.asked == [
        ("drafter", ("initialize", ("its own",), {}, None)),
        ("verifiers", ("initialize", ("theirs",))),
    ]


def test_what_fails_in_the_drafter_fails(ranks: Ranks) -> None:
    ranks.reply = (FAILURE, "no memory")
    with pytest.raises(RuntimeError, match="the drafter failed: no memory"):
        ranks.executor.collective_rpc("profile")


def test_nothing_is_asked_of_ranks_that_have_died(ranks: Ranks) -> None:
    ranks.executor.is_failed = True
    with pytest.raises(RuntimeError, match="failed"):
        ranks.executor.collective_rpc("profile")
    assert ranks.asked == []


def test_the_drafters_configuration_is_that_of_a_world_of_one() -> None:
    def parallel() -> Thing:
        return Thing(tensor_parallel_size=4, world_size=4, rank=3, worker_cls=classes.VERIFIER)

    theirs: Any = Thing(
        parallel_config=parallel(),
        speculative_config=Thing(target_parallel_config=parallel(), draft_parallel_config=parallel()),
    )
    made = MineDraftExecutor.__new__(MineDraftExecutor)
    made.vllm_config = theirs
    own = made._drafter_config(classes.DRAFTER)
    spec = own.speculative_config
    for each in (own.parallel_config, spec.target_parallel_config, spec.draft_parallel_config):
        assert (each.tensor_parallel_size, each.world_size, each.rank) == (1, 1, 0)
    assert own.parallel_config.worker_cls == classes.DRAFTER
    assert theirs.parallel_config == parallel(), "the verifiers' own is not touched"


class Rank:
    """A process that is starting."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exitcode: int | None = None
        self.killed = False

    def kill(self) -> None:
        self.killed = True


class Start:
    """A start that is watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafter = Rank("VllmWorker-0")
        self.verifiers = [Rank("VllmWorker-0"), Rank("VllmWorker-1")]
        monkeypatch.setattr(executor, "_WATCH_S", 0.001)
        monkeypatch.setattr("multiprocessing.active_children", lambda: [self.drafter, *self.verifiers])
        self.watch = executor._StartWatch(self.drafter)  # type: ignore[arg-type]

    def to_its_end(self) -> str | None:
        """Who has died, when the watch has seen to it."""
        self.watch.end()
        assert all(rank.killed for rank in (self.drafter, *self.verifiers))
        return self.watch.died


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(monkeypatch)


@pytest.mark.parametrize(
    ("rank", "code", "words"),
    [
        (-1, -9, "minedraft::drafter was killed by signal 9"),
        (0, 1, "minedraft::verifier_0 ended with exit code 1"),
        (1, 0, "minedraft::verifier_1 ended with exit code 0"),
    ],
)
def test_a_rank_that_dies_while_all_start_ends_the_others_and_is_named(
    rank: int, code: int, words: str, start: Start
) -> None:
    [*start.verifiers, start.drafter][rank].exitcode = code
    assert start.to_its_end() == words


def test_a_start_that_hangs_after_a_death_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that waits for the greeting of a rank that was killed just before it could send it never returns."""
    exits: list[int] = []
    monkeypatch.setattr(executor, "_HANG_S", 0.001)
    monkeypatch.setattr("os._exit", exits.append)
    start.drafter.exitcode = -9
    start.watch._thread.join(10)
    assert exits == [1]


def test_when_the_start_is_over_nobody_is_killed(start: Start) -> None:
    start.watch.end()
    assert start.watch.died is None
    assert not any(rank.killed for rank in (start.drafter, *start.verifiers))


class Running:
    """A process whose pipes close when it dies; its exit code is known a moment later."""

    def __init__(self, name: str, code: int | None) -> None:
        self.name = name
        self.exitcode: int | None = None
        self.killed = False
        self.sentinel, self._alive = os.pipe()
        self._code = code
        if code is not None:
            os.close(self._alive)

    def join(self, timeout: float) -> None:
        assert timeout > 0
        self.exitcode = self._code

    def kill(self) -> None:
        self.killed = True


def test_when_a_rank_dies_it_is_named_and_the_others_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(executor.log, "error", lambda _, exc_info: told.append(str(exc_info)))
    monkeypatch.setattr(MultiprocExecutor, "shutdown", lambda self: setattr(self, "shutting_down", True))
    ranks = [Running("minedraft::verifier_0", None), Running("minedraft::drafter", -9)]
    made = MineDraftExecutor.__new__(MineDraftExecutor)
    made.is_failed, made.workers = True, [Thing(proc=rank) for rank in ranks]
    made.shutdown()
    made.shutdown()
    assert told == ["minedraft::drafter was killed by signal 9"]
    assert [rank.killed for rank in ranks] == [True, False]


def test_an_engine_that_ends_lets_its_ranks_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MultiprocExecutor, "shutdown", lambda self: None)
    rank = Running("minedraft::verifier_0", None)
    made = MineDraftExecutor.__new__(MineDraftExecutor)
    made.is_failed, made.workers = False, [Thing(proc=rank)]
    made.shutdown()
    assert not rank.killed
