"""Every strategy is listed, and what does not go together is said."""

from itertools import product
from typing import get_args

import pytest

from worker.strategies import admission, command, lengths
from worker.strategies.catalogue import ENTRIES, Runner, unfit
from worker.strategies.costs import Costs
from worker.strategies.seam import Strategy


def names(flag: str) -> list[str]:
    return [entry.name for entry in ENTRIES if entry.flag == flag]


def test_each_admission_and_length_that_is_listed_can_be_made() -> None:
    for name in names("--verify"):
        admission.make(Strategy(admission=name, extra=1), 4, Costs())
    for name in names("--draft-length"):
        lengths.make(Strategy(length=name))


def test_what_a_user_gets_without_asking_is_listed_and_goes_anywhere() -> None:
    usual = Strategy()
    assert usual.mode in names("--mode")
    assert usual.source in names("--draft-source")
    assert usual.length in names("--draft-length")
    assert usual.admission in names("--verify")
    assert [unfit(usual, runner) for runner in get_args(Runner)] == [None, None]


@pytest.mark.parametrize(
    ("strategy", "runner", "why"),
    [
        (Strategy(admission="tetris", extra=1), "V2", "--verify tetris goes on vLLM's V1 runner only"),
        (Strategy(admission="confidence"), "V2", "--verify confidence goes on vLLM's V1 runner only"),
        (Strategy(mode="pearl"), "V2", "--mode pearl goes on vLLM's V1 runner only"),
        (Strategy(admission="tetris", extra=1, source="suffix"), "V1", "--draft-source suffix asks none"),
        (Strategy(admission="confidence", source="ngram"), "V1", "--draft-source ngram asks none"),
        (Strategy(mode="pearl", source="mixed"), "V1", "not with --draft-source mixed"),
        (Strategy(admission="tetris"), "V1", "--extra-drafts 1 or more"),
        (Strategy(extra=2), "V1", "--extra-drafts goes with --verify tetris"),
    ],
)
def test_what_does_not_go(strategy: Strategy, runner: Runner, why: str) -> None:
    found = unfit(strategy, runner)
    assert found is not None
    assert why in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("strategy", "runner"),
    [
        (Strategy(mode="auto", source="mixed", length="adaptive"), "V2"),
        (Strategy(mode="auto", source="mixed", length="adaptive", admission="confidence"), "V1"),
        (Strategy(mode="psd", source="suffix"), "V2"),
        (Strategy(mode="pearl", admission="tetris", extra=1), "V1"),
        (Strategy(admission="tetris", extra=2, source="mixed", length="adaptive"), "V1"),
    ],
)
def test_what_goes(strategy: Strategy, runner: Runner) -> None:
    assert unfit(strategy, runner) is None


def test_what_one_runner_has_the_other_is_told_about() -> None:
    modes = [mode for mode in names("--mode") if mode not in ("ar", "sd")]  # those have no strategy
    axes = (modes, names("--draft-source"), names("--draft-length"), names("--verify"))
    for mode, source, length, verify in product(*axes):
        strategy = Strategy(mode, source, length, verify, extra=int(verify == "tetris"))
        if unfit(strategy, "V1") is not None:
            assert unfit(strategy, "V2") is not None, strategy


def test_the_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run([]) == 0
    printed = capsys.readouterr().out
    for entry in ENTRIES:
        assert f" {entry.name} " in printed
        assert entry.flag in printed
    assert "…" not in printed, "nothing is cut"
