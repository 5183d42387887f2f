"""Modes by name; one that is fixed chooses nothing."""

import pytest

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes import make
from worker.strategies.modes.auto import Auto
from worker.strategies.modes.few_rows import FewRows
from worker.strategies.modes.prompts import Prompts
from worker.strategies.seam import Choice, Load, Mode, Strategy, Way


def made(mode: str, drafts: int = 3, *, ahead: bool = True) -> Mode:
    return make(Strategy(mode=mode), drafts, Costs(), Acceptance(), ahead=ahead, prompts=Prompts())


def test_pearl_always_drafts_ahead() -> None:
    mode = made("pearl")
    for load in (Load(0, False, 8), Load(1, False, 8), Load(8, True, 8)):
        assert mode.choose(load, Choice(Way.TWO, 1)) == Choice(Way.AHEAD, 3)
    assert mode.why == "one batch drafted ahead, 3 drafts: as asked for"


def test_pearl_is_refused_where_nothing_is_drafted_ahead() -> None:
    for refused in (lambda: made("pearl", ahead=False), lambda: made("pearl", drafts=1)):
        with pytest.raises(ValueError, match="pearl drafts ahead"):
            refused()


def test_modes_have_names() -> None:
    assert isinstance(made("psd"), FewRows)
    assert isinstance(made("auto"), Auto)
    with pytest.raises(ValueError, match="no mode 'eagle'"):
        made("eagle")
