"""Modes: how rows take turns, and how many tokens are drafted for each."""

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.auto import Auto
from worker.strategies.modes.few_rows import FewRows
from worker.strategies.modes.fixed import Fixed
from worker.strategies.modes.prompts import Prompts
from worker.strategies.seam import Choice, Mode, Strategy, Way


def make(
    strategy: Strategy,
    drafts: int,
    costs: Costs,
    acceptance: Acceptance,
    *,
    ahead: bool,
    prompts: Prompts,
) -> Mode:
    """The mode of a strategy.

    Args:
        strategy: which.
        drafts: tokens drafted at once, at most; at least 1, and 2 for `pearl`.
        costs: of passes, as they are learnt.
        acceptance: of drafts, as it is learnt.
        ahead: whether rows can be drafted ahead.
        prompts: that are read beside, as it is learnt.

    Raises:
        ValueError: there is no such mode, or it does not go.
    """
    match strategy.mode:
        case "psd":
            return FewRows(drafts, costs, acceptance, ahead=ahead)
        case "auto":
            return Auto(drafts, costs, acceptance, prompts, ahead=ahead)
        case "pearl" if ahead and drafts > 1:
            return Fixed(Choice(Way.AHEAD, drafts))
        case "pearl":
            raise ValueError("pearl drafts ahead: vLLM's V1 runner, and at least 2 drafts")
    raise ValueError(f"no mode {strategy.mode!r}: psd, pearl or auto")
