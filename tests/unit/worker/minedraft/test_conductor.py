"""What is decided before each call, and what is logged of it."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from worker.minedraft import conductor
from worker.minedraft.conductor import PLAIN, Conductor
from worker.strategies.seam import Choice, Load, Strategy, Way

LOAD = Load(rows=4, waiting=False, places=8)
TWO, ONE, AHEAD = Choice(Way.TWO, 3), Choice(Way.ONE, 2), Choice(Way.AHEAD, 3)


class Script:
    """A mode that goes through a list."""

    def __init__(self, *choices: Choice) -> None:
        self._left = list(choices)
        self.told: list[Choice] = []
        self.why = ""

    def choose(self, load: Load, now: Choice) -> Choice:
        assert load == LOAD
        self.told.append(now)
        choice = self._left.pop(0)
        self.why = f"because of {choice.drafts}"
        return choice


def led(*choices: Choice, strategy: Strategy | None = None) -> Any:
    it: Any = Conductor(None, strategy or Strategy(), 3, ahead=True)
    it._mode = Script(*choices)
    return it


def row(name: str = "r", tokens: int = 40, *, status: RequestStatus = RequestStatus.RUNNING, places: int = 3) -> Any:
    text = [7] * tokens
    asked = SimpleNamespace(extra_args={"minedraft_job": "j"})
    return SimpleNamespace(
        request_id=name,
        all_token_ids=text,
        num_prompt_tokens=20,
        spec_token_ids=[-1] * places,
        sampling_params=asked,
        status=status,
    )


def test_what_the_next_call_does_stays_until_it_begins() -> None:
    it = led(ONE, TWO)
    assert (
        it.next(lambda: LOAD)
        == it.next(lambda: LOAD)
        == it.begin(lambda: LOAD, LOAD.rows, drafting=True)
        == it.now
        == ONE
    )
    assert it.begin(lambda: LOAD, LOAD.rows, drafting=True) == TWO
    assert it._mode.told == [TWO, ONE]


def test_without_a_drafter_rows_are_decoded_plainly_and_nobody_is_asked() -> None:
    it = led()
    assert it.begin(lambda: LOAD, LOAD.rows, drafting=False) == it.now == PLAIN == Choice(Way.ONE, 0)
    assert (it.places, it.most("r")) == (0, 0)


@pytest.mark.parametrize(("choice", "places"), [(TWO, 3), (ONE, 2), (AHEAD, 2), (Choice(Way.ONE, 0), 0)])
def test_a_row_has_as_many_places_as_drafts_but_for_a_guess(choice: Choice, places: int) -> None:
    it = led(choice)
    it.begin(lambda: LOAD, LOAD.rows, drafting=True)
    assert (it.places, it.most("r")) == (places, places)


def test_what_repeats_is_found_but_not_where_the_drafter_goes_on_from_its_own_drafts() -> None:
    it = led(TWO, AHEAD, strategy=Strategy(source="ngram"))
    it.begin(lambda: LOAD, LOAD.rows, drafting=True)
    assert it.found(row()) == [7, 7, 7]
    assert it.found(row(places=0)) == [7, 7, 7], "what is found costs the drafter nothing"
    it.begin(lambda: LOAD, LOAD.rows, drafting=True)
    assert it.found(row()) is None


@pytest.mark.parametrize(
    ("status", "whole"),
    [
        (RequestStatus.FINISHED_STOPPED, True),
        (RequestStatus.FINISHED_LENGTH_CAPPED, True),
        (RequestStatus.FINISHED_ABORTED, False),
    ],
)
def test_the_end_of_a_row_is_told_with_its_job_and_its_text(status: RequestStatus, whole: bool) -> None:
    told: list[Any] = []
    it = led()
    it._lengths = it._sources = SimpleNamespace(ended=lambda *args, **kwargs: told.append((args, kwargs)))
    it.ended(row(status=status))
    assert told == [(("r",), {}), (("r", "j", [7] * 40, 20), {"whole": whole})]


def test_a_row_of_no_job_has_none() -> None:
    assert conductor._job(SimpleNamespace(sampling_params=None)) == ""
    assert conductor._job(SimpleNamespace(sampling_params=SimpleNamespace(extra_args=None))) == ""


def test_changes_are_logged_with_their_reason_once_a_second_at_most(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    clock = iter([0.0, 0.2, 0.4, 1.1, 1.3, 2.5])
    monkeypatch.setattr(conductor.time, "monotonic", lambda: next(clock))
    it = led(TWO, TWO, ONE, ONE, ONE, AHEAD)
    it.pace = SimpleNamespace(refresh=lambda: None, costs=it.pace.costs, acceptance=it.pace.acceptance)
    for _ in range(6):
        it.begin(lambda: LOAD, LOAD.rows, drafting=True)
    assert [line.getMessage() for line in caplog.records] == ["because of 3", "because of 2", "because of 3"]
    assert list(clock) == []
