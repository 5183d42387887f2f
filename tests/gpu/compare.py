"""Whether two engines said the same, where floats may tie. Pure.

Kernels add up numbers in another order for another shape of a batch, so a draft that is verified beside others may get
a logit that differs in its last digits. Where plain decoding's two likeliest tokens are that close, either is right.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: How close the two likeliest tokens of plain decoding are where another text may part from it, in logits, by dtype.
#: Both logits of a bfloat16 model may be rounded: by 2^-8 of themselves, and they are up to 16.
TIE = {"float32": 1e-4, "bfloat16": 2 * 2**-8 * 16}
#: How vLLM writes a token that it was told to write as an id.
_TOKEN = "token_id:"


class Likeness(Enum):
    """What another text of the same row is."""

    SAME = "the same"
    TIE = "the same until a tie"
    OTHER = "another one"


@dataclass(frozen=True, slots=True)
class Plain:
    """What plain decoding answered.

    Attributes:
        tokens: their ids.
        runners_up: the likeliest other token at each place.
        gaps: how much less likely that is (logits).
    """

    tokens: Sequence[int]
    runners_up: Sequence[int]
    gaps: Sequence[float]


def plain_of(choice: Mapping[str, Any]) -> Plain:
    """Read an answer that was asked for with `return_token_ids`, `logprobs` and `return_tokens_as_token_ids`."""
    runners_up, gaps = [], []
    for token, likely in zip(choice["token_ids"], choice["logprobs"]["top_logprobs"], strict=True):
        logprobs = {int(name.removeprefix(_TOKEN)): logprob for name, logprob in likely.items()}
        own = logprobs.pop(token)
        other = max(logprobs, key=lambda it: logprobs[it])
        runners_up.append(other)
        gaps.append(own - logprobs[other])
    return Plain(list(choice["token_ids"]), runners_up, gaps)


def likeness(plain: Plain, tokens: Sequence[int], tie: float) -> Likeness:
    """What a text is, beside plain decoding's; after a tie nothing can be compared.

    Args:
        plain: plain decoding's.
        tokens: the other one's.
        tie: a gap below this is one (logits).
    """
    place = first_difference(plain.tokens, tokens)
    if place is None:
        return Likeness.SAME
    if place >= min(len(plain.tokens), len(tokens)):
        return Likeness.OTHER  # it ended earlier, or later
    is_tie = plain.gaps[place] < tie and tokens[place] == plain.runners_up[place]
    return Likeness.TIE if is_tie else Likeness.OTHER


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Where two texts part; None: nowhere."""
    places = (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    shorter = min(len(one), len(other))
    return next(places, None if len(one) == len(other) else shorter)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, by likeness.

    Attributes:
        same: how many are.
        ties: how many part at a tie.
        others: what each of the others differs in.
    """

    same: int
    ties: int
    others: list[str]

    def __str__(self) -> str:
        """All of it, in a line."""
        first = f"; the first: {self.others[0]}" if self.others else ""
        return f"{self.same} the same, {self.ties} until a tie, {len(self.others)} others{first}"


def compare(plain: Iterable[Plain], texts: Iterable[Sequence[int]], tie: float) -> Comparison:
    """Compare rows, one by one."""
    same = ties = 0
    others = []
    for row, (expected, tokens) in enumerate(zip(plain, texts, strict=True)):
        match likeness(expected, tokens, tie):
            case Likeness.SAME:
                same += 1
            case Likeness.TIE:
                ties += 1
            case Likeness.OTHER:
                others.append(f"row {row}: {_difference(expected, tokens)}")
    return Comparison(same, ties, others)


def _difference(plain: Plain, tokens: Sequence[int]) -> str:
    place = first_difference(plain.tokens, tokens)
    assert place is not None
    if place >= min(len(plain.tokens), len(tokens)):
        return f"{len(tokens)} tokens, not {len(plain.tokens)}"
    said = f"token {place} is {tokens[place]}, not {plain.tokens[place]}"
    return f"{said}; next likely was {plain.runners_up[place]}, {plain.gaps[place]:.2g} below"
