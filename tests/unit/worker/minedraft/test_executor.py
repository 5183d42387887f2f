"""How the executor treats its rank more, without processes."""

import os
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from worker.minedraft import config, executor
from worker.minedraft.config import TwoBatchConfig
from worker.minedraft.executor import MineDraftExecutor
from worker.minedraft.lanes import CallNumbers
from worker.minedraft.names import RankDied
from worker.minedraft.presence import Presence, State
from worker.minedraft.shown_drafts import NotShownError, ShownDrafts


class Keeper:
    """What keeps the drafter, of which there is one, or none."""

    def __init__(self, asked: list[tuple[str, object]]) -> None:
        self._asked = asked
        self.serving = False
        self.drafter: Any = Thing(reply=self._reply, handle=Thing(proc=None), forget=self._forget)
        self.waiting: Any = None
        self.ended = self.forgotten = 0
        self.waited: list[float | None] = []

    def call(self, call: tuple[object, ...], *, replies: bool) -> Any:
        if self.drafter is not None:
            self._asked.append(("drafter", (*call, replies)))
        return self.drafter

    def serve(self, *, outlived: bool) -> None:
        self.serving = outlived

    def take_next(self) -> Any:
        self.drafter, self.waiting = self.waiting, None
        return self.drafter

    def end(self) -> Any:
        self.ended += 1
        return self.drafter

    def _reply(self, timeout: float | None) -> str:
        self.waited.append(timeout)
        return "drafter"

    def _forget(self) -> None:
        self.forgotten += 1


class Ranks:
    """The ranks of an executor with two verifiers: what it asks of whom, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, object]] = []

        def verifiers(_: Any, method: object, *rest: object) -> object:
            self.asked.append(("verifiers", (method, rest[1])))
            return "the one reply" if rest[4] is not None else ["verifier 0", "verifier 1"]

        monkeypatch.setattr(MultiprocExecutor, "collective_rpc", verifiers)
        monkeypatch.setattr(config, "read", lambda: TwoBatchConfig("/engine", 2))
        self.executor = MineDraftExecutor.__new__(MineDraftExecutor)
        self.executor.is_failed = False
        self.executor._presence = self.presence = Presence(None)
        self.executor._numbers = CallNumbers()
        self.executor._shown = ShownDrafts(None, 1)
        self.keeper = Keeper(self.asked)
        self.executor._drafters = self.keeper  # type: ignore[assignment]

    def lose(self, *, serving: bool) -> None:
        """The drafter ends while it is asked."""

        def reply(timeout: float | None) -> object:
            raise RankDied("minedraft::drafter was killed by signal 9")

        self.keeper.drafter.reply, self.keeper.serving = reply, serving


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_where_every_rank_replies_the_drafter_replies_last(ranks: Ranks) -> None:
    replies = ranks.executor.collective_rpc("profile", args=(1,), kwargs={"a": 2})
    assert replies == ["verifier 0", "verifier 1", "drafter"]
    # The drafter is asked first: it has to be at work while vLLM waits for the verifiers.
    assert ranks.asked == [("drafter", ("profile", (1,), {"a": 2}, True)), ("verifiers", ("profile", (1,)))]


@pytest.mark.parametrize("timeout", [None, 7.5])
def test_the_drafters_reply_may_take_as_long_as_the_others(timeout: float | None, ranks: Ranks) -> None:
    ranks.executor.collective_rpc("profile", timeout)
    assert ranks.keeper.waited == [timeout]


def test_where_one_rank_replies_the_drafter_does_not(ranks: Ranks) -> None:
    ranks.lose(serving=False)  # its reply is never read
    assert ranks.executor.collective_rpc("execute_model", non_block=True, unique_reply_rank=0) == "the one reply"
    assert ranks.asked[0] == ("drafter", ("execute_model", (), {}, False))


def test_the_drafter_may_get_arguments_of_its_own(ranks: Ranks) -> None:
    ranks.executor.collective_rpc("initialize", args=("theirs",), drafter_args=("its own",))
    assert ranks.asked == [
        ("drafter", ("initialize", ("its own",), {}, True)),
        ("verifiers", ("initialize", ("theirs",))),
    ]


def test_without_a_drafter_the_verifiers_replies_are_all(ranks: Ranks) -> None:
    ranks.keeper.drafter = None
    assert ranks.executor.collective_rpc("profile") == ["verifier 0", "verifier 1"]
    assert ranks.executor.collective_rpc("step", non_block=True, unique_reply_rank=0) == "the one reply"
    assert [who for who, _ in ranks.asked] == ["verifiers"] * 2


@pytest.mark.parametrize("state", State)
def test_of_one_that_is_lost_while_it_is_asked_no_reply_is_wanted(state: State, ranks: Ranks) -> None:
    """Its keeper may have noticed before; if it hangs, it does now."""
    ranks.lose(serving=True)
    ranks.presence.state = state
    assert ranks.executor.collective_rpc("profile") == ["verifier 0", "verifier 1"]
    assert ranks.presence.given_up
    assert ranks.presence.state is state, "that is for the keeper to say"


def test_an_engine_that_starts_cannot_do_without_it(ranks: Ranks) -> None:
    ranks.lose(serving=False)
    with pytest.raises(RankDied, match="killed by signal 9"):
        ranks.executor.collective_rpc("profile")
    assert not ranks.presence.given_up


def test_nothing_is_asked_of_ranks_that_have_died(ranks: Ranks) -> None:
    ranks.executor.is_failed = True
    with pytest.raises(RuntimeError, match="failed"):
        ranks.executor.collective_rpc("profile")
    assert ranks.asked == []


@pytest.mark.parametrize("link", ["host", "nccl"])
def test_once_all_are_warm_the_engine_goes_on_without_a_drafter(
    ranks: Ranks, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless NCCL binds its ranks together."""
    served: list[bool] = []
    monkeypatch.setattr(config, "read", lambda: TwoBatchConfig("folder", 1, link=link))
    monkeypatch.setattr(MultiprocExecutor, "compile_or_warm_up_model", lambda _: served.append(ranks.keeper.serving))
    ranks.executor.compile_or_warm_up_model()
    assert served == [False]
    assert ranks.keeper.serving is (link == "host")


class Steps:
    """An executor's steps; every step verifies a new request, and so has the next number."""

    def __init__(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            MultiprocExecutor, "execute_model", lambda _, step, non_block: ranks.asked.append(("step", non_block))
        )
        self._ranks, self._count = ranks, 0

    def next(self) -> list[str]:
        """What was asked, by whom and of whom."""
        self._ranks.asked.clear()
        self._count += 1
        step = Thing(num_scheduled_tokens={f"r{self._count}": 1}, scheduled_spec_decode_tokens={})
        self._ranks.executor.execute_model(step, non_block=True)
        return [who if who == "step" else f"{who}: {asked[0]}" for who, asked in self._ranks.asked]  # type: ignore[index]


@pytest.fixture
def steps(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(ranks, monkeypatch)


def test_the_next_drafter_and_the_verifiers_meet_before_its_first_step(ranks: Ranks, steps: Steps) -> None:
    ranks.keeper.drafter, ranks.keeper.waiting = None, ranks.keeper.drafter
    for state in (State.ABSENT, State.WAITING):
        ranks.presence.state = state
        assert steps.next() == ["step"]
    ranks.presence.state = State.JOINING
    assert steps.next() == ["drafter: join", "verifiers: join", "step"]
    (_, (_, (address, last), _, replies)), (_, (_, theirs)), _ = ranks.asked  # type: ignore[misc]
    assert address.startswith("/engine/link-"), "no rank has met there"
    assert last == 2, "the calls that it has missed"
    assert not replies
    assert theirs == (address, last)
    ranks.presence.state = State.PRESENT
    assert steps.next() == ["step"]


def test_each_drafter_is_met_at_a_place_of_its_own(ranks: Ranks, steps: Steps) -> None:
    ranks.presence.state = State.JOINING
    addresses = set()
    for _ in range(2):
        ranks.keeper.waiting = ranks.keeper.drafter
        steps.next()
        addresses.add(ranks.asked[0][1][1][0])  # type: ignore[index]
    assert len(addresses) == 2


def test_nobody_waits_for_one_that_was_lost_before_it_could_join(ranks: Ranks, steps: Steps) -> None:
    ranks.keeper.drafter = ranks.keeper.waiting = None
    ranks.presence.state = State.JOINING
    assert steps.next() == ["step"]


class Running:
    """A process whose pipes close when it dies; its exit code is known a moment later."""

    def __init__(self, name: str, code: int | None = None) -> None:
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


class Ending:
    """An executor that ends: whom vLLM ends with it, and what is told."""

    def __init__(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended_by_vllm: list[list[str]] = []
        self.told: list[str] = []
        self.executor, self.keeper = ranks.executor, ranks.keeper
        self.verifier, self.drafter = Running("minedraft::verifier_0"), Running("minedraft::drafter")
        self.keeper.drafter.handle.proc = self.drafter
        self.executor.workers = [Thing(proc=self.verifier)]

        def vllms(made: Any) -> None:
            if not getattr(made, "shutting_down", False):
                made.shutting_down = True
                self.ended_by_vllm.append([worker.proc.name for worker in made.workers])

        monkeypatch.setattr(executor.log, "error", lambda _, exc_info: self.told.append(str(exc_info)))
        monkeypatch.setattr(MultiprocExecutor, "shutdown", vllms)


@pytest.fixture
def ending(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> Ending:
    return Ending(ranks, monkeypatch)


def test_an_engine_that_ends_lets_all_its_ranks_end_by_themselves(ending: Ending) -> None:
    ending.executor.shutdown()
    ending.executor.shutdown()
    assert ending.ended_by_vllm == [["minedraft::verifier_0", "minedraft::drafter"]]
    assert (ending.keeper.ended, ending.keeper.forgotten) == (1, 1)
    assert not ending.verifier.killed
    assert not ending.drafter.killed
    assert ending.told == []


def test_an_engine_without_a_drafter_ends_as_well(ending: Ending) -> None:
    ending.keeper.drafter = None
    ending.executor.shutdown()
    assert ending.ended_by_vllm == [["minedraft::verifier_0"]]
    assert ending.keeper.ended == 1, "nor is another one started"


def test_when_a_verifier_dies_it_is_named_and_the_others_are_killed(ending: Ending) -> None:
    ending.verifier = Running("minedraft::verifier_0", -9)
    ending.executor.workers = [Thing(proc=ending.verifier)]
    ending.executor.is_failed = True
    ending.executor.shutdown()
    ending.executor.shutdown()
    assert ending.told == ["minedraft::verifier_0 was killed by signal 9"]
    assert (ending.verifier.killed, ending.drafter.killed) == (False, True)


def test_a_verifiers_death_is_told_before_anybody_stops_waiting_for_its_drafts(ending: Ending) -> None:
    ending.verifier = Running("minedraft::verifier_0", -9)
    ending.executor.workers = [Thing(proc=ending.verifier)]
    ending.executor.is_failed = True
    told: list[list[str]] = []
    ending.executor._shown = Thing(end=lambda: told.append(ending.told.copy()))  # type: ignore[assignment]
    ending.executor.shutdown()
    assert told == [["minedraft::verifier_0 was killed by signal 9"]]


def test_in_an_engine_that_ends_nobody_waits_for_drafts(ending: Ending) -> None:
    ending.executor.shutdown()
    with pytest.raises(NotShownError, match="ending"):
        ending.executor._shown.wait(1, {"r0": [-1]}, 10)


def test_no_rank_on_the_v1_runner_is_asked_for_drafts(ranks: Ranks) -> None:
    """It would answer when its forward pass is over."""
    ranks.executor.vllm_config = Thing(use_v2_model_runner=False)
    assert ranks.executor.take_draft_token_ids() is None
    assert ranks.asked == []


def test_of_the_ranks_on_the_v2_runner_verifiers_are_asked_for_drafts(ranks: Ranks) -> None:
    """They have them, on their devices, when they have begun a call; a drafter would have to end its drafting first."""
    ranks.executor.vllm_config, ranks.executor.output_rank = Thing(use_v2_model_runner=True), 0
    ranks.executor.take_draft_token_ids()
    assert [rank for rank, *_ in ranks.asked] == ["verifiers"]


def test_a_drafter_that_dies_while_the_engine_starts_is_its_end(ending: Ending) -> None:
    ending.keeper.drafter.handle.proc = Running("minedraft::drafter", 1)
    called: list[str] = []
    ending.executor.failure_callback = lambda: called.append("failed")
    ending.executor._fail("minedraft::drafter ended with exit code 1")
    assert ending.executor.is_failed
    assert ending.told == ["minedraft::drafter ended with exit code 1"]
    assert ending.verifier.killed
    assert called == ["failed"]
    ending.executor._fail("again")
    assert called == ["failed"]


def test_one_that_dies_before_anybody_can_be_told_is_its_end_too(ending: Ending) -> None:
    ending.executor._fail("minedraft::drafter ended with exit code 1")
    assert ending.executor.is_failed
    assert len(ending.ended_by_vllm) == 1


def test_the_queue_of_calls_is_given_back(ending: Ending) -> None:
    given_back: list[str] = []
    ending.executor.rpc_broadcast_mq = Thing(shutdown=lambda: given_back.append("calls"))
    ending.executor.shutdown()
    ending.executor.shutdown()
    assert given_back == ["calls"]
