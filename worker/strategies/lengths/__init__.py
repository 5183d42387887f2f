"""How many drafts of each row may be verified: decided from what became of its drafts before."""

from worker.strategies.lengths.adaptive import Adaptive
from worker.strategies.lengths.fixed import Fixed
from worker.strategies.seam import Lengths, Strategy


def make(strategy: Strategy) -> Lengths:
    """The rule that a strategy names.

    Raises:
        ValueError: no rule has this name.
    """
    match strategy.length:
        case "fixed":
            return Fixed()
        case "adaptive":
            return Adaptive()
        case other:
            raise ValueError(f"no draft length is called {other}: fixed or adaptive")
