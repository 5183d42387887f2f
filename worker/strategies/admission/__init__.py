"""Which of the drafts that are there are verified. Every rule admits a row's drafts from the first on.

A rule goes through the drafts of a batch from the likeliest to survive on (`survival.py`) and stops somewhere. Before
it comes to a draft it has decided about all that come before, and it has looked at nothing that follows from the draft
itself: so each is decided about before it is drawn, as if it was drawn only then, and texts keep their distribution,
those of all rows of the batch together.
"""

from worker.strategies.admission.all import AdmitAll
from worker.strategies.admission.confidence import AdmitWhileRising
from worker.strategies.admission.tetris import AdmitBest
from worker.strategies.costs import Costs
from worker.strategies.seam import Admission, Strategy


def make(strategy: Strategy, drafts: int, costs: Costs) -> Admission:
    """The rule that a strategy names.

    Args:
        strategy: what the user asked for.
        drafts: tokens drafted for each row in a call, at most.
        costs: what passes take; `confidence` reads it at each call.

    Raises:
        ValueError: no rule has this name, or `tetris` would verify nothing.
    """
    match strategy.admission:
        case "all":
            return AdmitAll()
        case "tetris":
            return AdmitBest(drafts - strategy.extra)
        case "confidence":
            return AdmitWhileRising(costs)
        case other:
            raise ValueError(f"no admission is called {other}: all, tetris or confidence")
