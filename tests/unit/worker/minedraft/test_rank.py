"""A step that fails ends its process."""

import logging
import os
import time

import pytest

from worker.minedraft import rank
from worker.minedraft.link import LinkError
from worker.minedraft.rank import fatal


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
