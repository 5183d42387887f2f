"""Which rows plain decoding must answer with the very same text. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

#: vLLM takes a temperature below this for 0: the likeliest token, always.
GREEDY_BELOW = 1e-5
#: What says that there is no seed: vLLM takes -1 for null.
_NO_SEED = (None, -1)


class Kind(StrEnum):
    """How a row's tokens are chosen."""

    GREEDY = "greedy"
    """The likeliest each time."""
    BEAM = "beam"
    """The likeliest sequences: at any temperature none of their tokens is drawn."""
    SEEDED = "seeded"
    """Drawn by the row's own generator: the same text from modes `ar` and `psd`, however rows are batched."""
    FREE = "free"
    """Drawn without a seed: another text each time, which only statistics could compare."""


def kind_of(body: Mapping[str, Any], default_temperature: float) -> Kind:
    """How the tokens of a request are chosen.

    Args:
        body: the request.
        default_temperature: of a request that has none (the model may say so).
    """
    if body.get("use_beam_search"):
        return Kind.BEAM
    asked = body.get("temperature")
    temperature = asked if isinstance(asked, int | float) else default_temperature
    if temperature < GREEDY_BELOW:
        return Kind.GREEDY
    return Kind.FREE if body.get("seed") in _NO_SEED else Kind.SEEDED
