"""A step that fails ends its process; ranks that are at work let another drafter join them."""

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from worker.minedraft import config, rank
from worker.minedraft.config import TwoBatchConfig
from worker.minedraft.lanes import VerifierLane
from worker.minedraft.link import LinkError
from worker.minedraft.platform import RankLink, RankWorker
from worker.minedraft.presence import Presence, State
from worker.minedraft.rank import JOIN_WITHIN, fatal
from worker.minedraft.ranks_v1 import DrafterWorker, LaneWorker, VerifierWorker
from worker.minedraft.relay import FirstVerifier, OtherVerifier
from worker.minedraft.stages import StageClock


class Ended(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it is waited before the process ends."""
    waited: list[float] = []

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    return waited


def test_a_step_that_succeeds_is_itself(waits: list[float]) -> None:
    @fatal
    def step(one: int, *, two: int) -> int:
        """Add."""
        return one + two

    assert step(1, two=2) == 3
    assert step.__doc__ == "Add."


@pytest.mark.parametrize(("error", "grace"), [(ValueError("broken"), 0), (LinkError("the peer is gone"), 1)])
def test_one_that_fails_ends_its_process_and_is_told(
    error: Exception,
    grace: int,
    waits: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @fatal
    def step() -> None:
        raise error

    monkeypatch.setattr(rank.log, "handlers", [caplog.handler])  # vLLM's logger may keep it from the root's
    with pytest.raises(Ended) as ended:
        step()
    assert ended.value.args == (1,)
    assert len(waits) == grace, "the first error to be told is that of whoever failed first"
    assert str(error) in caplog.text


class Recorder:
    """A lane, or a link, that notes what is done to it."""

    def __init__(self) -> None:
        self.did: list[object] = []

    def rejoin(self, end: object) -> None:
        self.did.append(end)

    def close(self) -> None:
        self.did.append("close")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoBatchConfig:
    """An engine with two verifiers, whose drafter takes part."""
    settings = TwoBatchConfig(str(tmp_path), 2)
    monkeypatch.setattr(config, "read", lambda: settings)
    Presence(tmp_path).state = State.PRESENT
    return settings


def at_work(worker_class: type[LaneWorker], **fields: object) -> Any:
    """A worker whose engine serves."""
    made: Any = worker_class.__new__(worker_class)
    made.vllm_config = Thing(speculative_config=Thing(num_speculative_tokens=3))
    made.model_runner = Thing(clock=StageClock(None), lane=None)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def verifier(rank: int, connect: Callable[[str, timedelta], object]) -> Any:
    lane = VerifierLane(OtherVerifier(Recorder()), StageClock(None), sends=rank == 0)  # type: ignore[arg-type]
    recorder = Recorder()
    lane.rejoin = recorder.rejoin  # type: ignore[method-assign]
    return at_work(VerifierWorker, rank=rank, lane=lane, connect=connect, _relay=Recorder(), ends=recorder.did)


def test_the_first_verifier_meets_the_next_drafter_and_goes_on_with_its_link(engine: TwoBatchConfig) -> None:
    link, met = Recorder(), []

    def connect(address: str, within: timedelta) -> Recorder:
        met.append((address, within))
        return link

    worker = verifier(0, connect)
    worker.join("there", 7)
    assert met == [("there", JOIN_WITHIN)]
    # First none: the old link is given up before this rank waits for the new one.
    assert [end._link for end in worker.ends] == [None, link]
    assert all(isinstance(end, FirstVerifier) for end in worker.ends)
    assert not Presence(Path(engine.folder)).given_up


def test_when_the_next_drafter_does_not_come_rows_go_on_and_it_is_given_up(engine: TwoBatchConfig) -> None:
    def connect(_: str, within: timedelta) -> Recorder:
        raise LinkError("the ranks did not meet")

    worker = verifier(0, connect)
    worker.join("there", 7)
    assert [end._link for end in worker.ends] == [None]
    assert Presence(Path(engine.folder)).given_up


def test_the_other_verifiers_have_nobody_to_meet(engine: TwoBatchConfig) -> None:
    worker = verifier(1, lambda *_: pytest.fail("it meets somebody"))
    worker.join("there", 7)
    (end,) = worker.ends
    assert isinstance(end, OtherVerifier)
    assert not Presence(Path(engine.folder)).given_up


@pytest.mark.parametrize("within", [(), (JOIN_WITHIN,)])
def test_ranks_meet_within_the_time_that_is_said(
    within: tuple[timedelta, ...], engine: TwoBatchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows wait for ranks that join, so those have less time than a message."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(RankLink, "connect", lambda *told: asked.append(told))
    at_work(VerifierWorker).connect("there", *within)
    assert asked == [("there", RankLink.FIRST, 3, engine.deadline, within[0] if within else None)]
    assert engine.deadline > JOIN_WITHIN


def test_a_drafter_that_joins_goes_on_counting_where_the_engine_is(engine: TwoBatchConfig) -> None:
    worker = at_work(DrafterWorker, connect=lambda _: Recorder())
    worker.join("there", 7)
    assert worker.lane is worker.model_runner.lane
    assert worker.lane.call == 7


def test_a_drafter_that_cannot_join_ends(engine: TwoBatchConfig, waits: list[float]) -> None:
    def connect(_: str) -> Recorder:
        raise LinkError("the ranks did not meet")

    with pytest.raises(Ended):
        at_work(DrafterWorker, connect=connect).join("there", 7)


def test_a_rank_that_ends_closes_its_link(engine: TwoBatchConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RankWorker, "shutdown", lambda _: None)
    lane = Recorder()
    at_work(DrafterWorker, lane=lane).shutdown()
    at_work(DrafterWorker).shutdown()  # one that has not met the others
    assert lane.did == ["close"]
