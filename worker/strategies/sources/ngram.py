"""Drafts from the row itself: what followed its last words where it had them before (prompt lookup).

For rows that say again what they were given: summaries, edits, extraction, code. As vLLM's own n-gram proposer
(`v1/spec_decode/ngram_proposer.py`), but for the last 4, 3 or 2 tokens, and the last place where they were before.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.strategies.seam import Guess
from worker.strategies.sources.trust import believed

_LEAST, _MOST = 2, 4
#: Tokens that are looked through, the last ones of a row.
_WINDOW = 8192


class NGram:
    """Implements `Source`."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def find(self, request: str, job: str, tokens: Sequence[int], prompt: int, most: int) -> Guess:
        """What followed; each token is the surer the more tokens before it are the same."""
        del job, prompt
        row = self._rows.setdefault(request, _Row())
        text = row.read(tokens)[-_WINDOW:]
        found = last_match(text)
        if found is None:
            return Guess([], [])
        start, length = found
        return Guess(copied(text, start, most), [believed(length + drafted) for drafted in range(most)])

    def ended(self, request: str, job: str, tokens: Sequence[int], prompt: int, *, whole: bool) -> None:
        """Forget the row."""
        del job, tokens, prompt, whole
        self._rows.pop(request, None)


class _Row:
    """A row's tokens, for numpy."""

    def __init__(self) -> None:
        self._tokens: NDArray[np.int32] = np.empty(0, np.int32)
        self._read = 0

    def read(self, tokens: Sequence[int]) -> NDArray[np.int32]:
        """All tokens, of which only new ones are looked at."""
        if len(tokens) > len(self._tokens):
            longer = np.empty(2 * len(tokens), np.int32)
            longer[: self._read] = self._tokens[: self._read]
            self._tokens = longer
        self._tokens[self._read : len(tokens)] = tokens[self._read :]
        self._read = len(tokens)
        return self._tokens[: self._read]


def last_match(text: NDArray[np.int32]) -> tuple[int, int] | None:
    """Where the longest end of a text, of 2 to 4 tokens, was before, the last time.

    Returns:
        The place after it, and its length; None where even the shortest is new.
    """
    found, places = None, np.ones(max(0, len(text) - 1), np.bool_)
    for length in range(1, _MOST + 1):
        # [i] whether the length tokens up to i are those at the end; the text's own end is left out.
        places = places[1:] if length > 1 else places
        places = places & (text[: len(places)] == text[-length]) if len(places) else places
        if length < _LEAST:
            continue
        backwards = places[::-1]
        last = int(backwards.argmax()) if len(places) else 0
        if not len(places) or not backwards[last]:
            break
        found = len(text) - 1 - last, length
    return found


def copied(text: NDArray[np.int32], start: int, most: int) -> list[int]:
    """The `most` tokens from a place on; at the text's end it goes on with the copy, so what repeats is repeated."""
    follows: list[int] = text[start : start + most].tolist()
    for behind in range(most - len(follows)):
        follows.append(follows[behind])
    return follows
