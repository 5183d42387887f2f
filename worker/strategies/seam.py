"""What a strategy is asked, and answers. One file a strategy; none knows the scheduler, the ranks or a device.

Three axes compose, under a mode:

- **source** (`sources/`): where a row's drafts are from: the draft model, or text that was seen before.
- **length** (`lengths/`): how many drafts of a row may be verified; decided in the engine process, from its past.
- **admission** (`admission/`): which of the drafts that are there are verified; decided by the drafter, which knows how
  sure its model was.
- **mode** (`modes/`): how rows take turns, and how many tokens are drafted for each.

**Lossless.** Each place is sampled as plain decoding would, and a draft stays while it is what was sampled, so nothing
here can change a text, but for one case: drafts that are drawn stay with probability min(1, p/q), which is right only
if whether a draft is verified does not depend on what was drawn for it. So a strategy never sees a draft's own
probability: `Drafted.chances` are what was known before it was drawn (`minedraft.md`, "TETRIS").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: float64 [rows, drafts].
Chances = NDArray[np.float64]
#: int64 [rows].
Counts = NDArray[np.int64]


class Way(IntEnum):
    """How rows take turns; its number travels with each call, and is in its stage records."""

    TWO = 0
    """Two batches: one is drafted for while the other one is verified."""
    ONE = 1
    """One batch, drafted for and verified in turn; with no drafts this is plain decoding."""
    AHEAD = 2
    """One batch; while its drafts are verified the drafter goes on from them, as if all were accepted (PEARL)."""


class Choice(NamedTuple):
    """What is done from the next call on.

    Attributes:
        way: how rows take turns.
        drafts: tokens drafted for each row in a call, from 0. In `AHEAD` one of them is the guess at what is sampled
            after the drafts that are being verified, so one less is verified.
    """

    way: Way
    drafts: int


class Load(NamedTuple):
    """What there is to do.

    Attributes:
        rows: that run, in all batches.
        waiting: whether others would run if there were room.
        places: rows that may run at once.
        reading: of the rows, those that still read their prompt.
    """

    rows: int
    waiting: bool
    places: int
    reading: int = 0


class Mode(Protocol):
    """Chooses for all rows; in the engine process, which asks before each call.

    Attributes:
        why: the reason for the last change, in words.
    """

    why: str

    def choose(self, load: Load, now: Choice) -> Choice:
        """What to do from the next call on.

        Args:
            load: what there is to do.
            now: what is done so far.
        """
        ...


class Lengths(Protocol):
    """Says how many drafts of each row may be verified; in the engine process.

    Of the draft model's, that is: how many of those that a source has found are verified it says itself, by how likely
    they are and the same price (`sources/drafts.py`).
    """

    def most(self, request: str, drafts: int, price: float) -> int:
        """How many of a row's drafts to verify, from 0 to `drafts`.

        Args:
            request: the row.
            drafts: how many there are.
            price: the number of tokens that the devices would make in the time that one more verified token takes:
                a draft whose chance to be accepted is below it costs more than it brings. 0: it costs nothing.
        """
        ...

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        """So many drafts of a row were verified, and so many, from the first on, accepted."""
        ...

    def ended(self, request: str) -> None:
        """A row will not come back."""
        ...


class Drafted(NamedTuple):
    """What was drafted for a batch.

    Attributes:
        chances: how sure the draft model was at each place *before* it chose a token there: the largest probability of
            its distribution, from 0 to 1. Not the probability of the token that it drew.
        way: how rows take turns.
    """

    chances: Chances
    way: Way


class Admission(Protocol):
    """Says which drafts are verified; in the drafter's process."""

    #: Whether it needs `Drafted.chances`, which cost a pass over the logits.
    needs_chances: bool

    def admit(self, drafted: Drafted) -> Counts:
        """[rows] how many of each row's drafts, from the first on, are verified.

        Whether a draft is depends on chances up to its own place of its row alone, and on those of other rows: not on
        chances of later places of its own row, which follow from what was drawn for it.
        """
        ...

    def verified(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        """What came of drafts.

        Args:
            chances: of each, as they were when it was drafted.
            counts: [rows] how many of them were verified.
            accepted: [rows] how many of those, from the first on, were accepted.
        """
        ...


class Guess(NamedTuple):
    """Drafts that a source has found.

    Attributes:
        ids: the tokens.
        chances: how likely each one is right where those before it are, by what is known of this source.
    """

    ids: list[int]
    chances: list[float]


class Source(Protocol):
    """Finds drafts in text that was seen before; in the engine process."""

    def find(self, request: str, job: str, tokens: Sequence[int], prompt: int, most: int) -> Guess:
        """What may follow; empty where nothing was found.

        Args:
            request: the row.
            job: rows of one job are alike; "": not known.
            tokens: of the row, its prompt first. From call to call they only grow.
            prompt: how many of them are its prompt.
            most: drafts, at most.
        """
        ...

    def ended(self, request: str, job: str, tokens: Sequence[int], prompt: int, *, whole: bool) -> None:
        """A row will not come back.

        Args:
            request: the row.
            job: its job.
            tokens: all that it has.
            prompt: how many of them are its prompt.
            whole: whether it came to its end; else it was aborted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Strategy:
    """What the user asked for.

    Attributes:
        mode: `psd` (two batches; few rows as is fastest), `pearl` (one batch, drafted ahead), `auto` (measured).
        source: `model`, `ngram`, `suffix` or `mixed`.
        length: `fixed` or `adaptive`.
        admission: `all`, `tetris` or `confidence`.
        extra: tokens drafted beyond those of which `tetris` verifies as many in the mean (e of the paper).
    """

    mode: str = "psd"
    source: str = "model"
    length: str = "fixed"
    admission: str = "all"
    extra: int = 0
