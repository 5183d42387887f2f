"""Drafts from rows of the same job that are done: what followed most often after the longest end that they share.

Rows of a job repeat its templates: the same first words, the same keys, the same phrases in between. SuffixDecoding
(arXiv 2411.04975) shows it on agents' requests; here a job is what makes texts alike, and an automaton keeps them.

A row that is done is taken in a few tokens at a time, beside the drafts of other rows: at once a long one would hold up
the engine's process for milliseconds. All rows of a call share one allowance for it, however many they are: where rows
write more than that a part of them is not taken in, and those that are say the same. The first 262,144 tokens of a job
are kept, and the four jobs used last.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

from worker.strategies.seam import Guess
from worker.strategies.sources.automaton import Automaton, Cursor
from worker.strategies.sources.trust import believed

#: Tokens at the end of a prompt that are kept with the answer: the first words of answers follow them.
_PROMPT_TAIL = 16
_TOKENS_A_JOB, _JOBS = 1 << 18, 4
#: Tokens that wait to be taken in, of all jobs; rows that would make more are not kept.
_WAITING = 1 << 16
#: Time for taking in texts until rows ask again, in the automaton's steps of about 0.2 us: about a hundred tokens.
_STEPS = 2000
#: A token that takes more steps is one of a text that repeats itself; what is left of it is not taken in.
_MOST_STEPS = 400


class Suffix:
    """Implements `Source`."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Automaton] = OrderedDict()
        self._rows: dict[str, Cursor] = {}
        self._waiting: deque[tuple[Automaton, list[int]]] = deque()
        self._waiting_tokens = self._done = 0
        self._asked: set[str] = set()  # rows, since there was an allowance
        self._steps = _STEPS  # left of it

    def find(self, request: str, job: str, tokens: Sequence[int], prompt: int, most: int) -> Guess:
        """What followed most often; the surer, the more is shared before it and the less often others followed."""
        del prompt
        if request in self._asked:  # another call
            self._asked.clear()
            self._steps = _STEPS
        self._asked.add(request)
        self._take_in()
        automaton = self._jobs.get(job)
        if automaton is None:
            return Guess([], [])
        self._jobs.move_to_end(job)
        cursor = self._rows.get(request)
        if cursor is None or cursor.automaton is not automaton:
            cursor = self._rows[request] = Cursor(automaton)
        return continued(automaton, *cursor.read(tokens), most)

    def ended(self, request: str, job: str, tokens: Sequence[int], prompt: int, *, whole: bool) -> None:
        """Keep the row's text for others, if it is whole."""
        self._rows.pop(request, None)
        self._asked.discard(request)
        text = list(tokens[max(0, prompt - _PROMPT_TAIL) :])
        if not whole or self._waiting_tokens + len(text) > _WAITING:
            return
        automaton = self._automaton(job)
        waiting = sum(len(each) for its, each in self._waiting if its is automaton)
        if automaton.tokens + waiting + len(text) > _TOKENS_A_JOB:
            return
        self._waiting.append((automaton, text))
        self._waiting_tokens += len(text)

    def tokens(self, job: str) -> int:
        """Of a job's rows, those that were taken in."""
        automaton = self._jobs.get(job)
        return automaton.tokens if automaton else 0

    def _automaton(self, job: str) -> Automaton:
        automaton = self._jobs.get(job)
        if automaton is None:
            automaton = self._jobs[job] = Automaton()
            if len(self._jobs) > _JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(job)
        return automaton

    def _take_in(self) -> None:
        while self._waiting and self._steps > 0:
            automaton, text = self._waiting[0]
            if self._done < len(text):
                took = automaton.append(text[self._done])
                self._steps -= took
                self._done = self._done + 1 if took < _MOST_STEPS else len(text)
                continue
            automaton.end_text()
            self._waiting.popleft()
            self._waiting_tokens -= len(text)
            self._done = 0


def continued(automaton: Automaton, state: int, length: int, most: int) -> Guess:
    """The most frequent way on from a state.

    Args:
        automaton: the texts.
        state: where a row stands in them.
        length: how many of its last tokens are in that state.
        most: tokens, at most.
    """
    ids: list[int] = []
    chances: list[float] = []
    while len(ids) < most:
        favourite = automaton.favourite(state)
        while favourite is None and state:  # all texts end here: fewer tokens before may tell more
            state = automaton.link(state)
            length = automaton.length(state)
            favourite = automaton.favourite(state)
        if not state or favourite is None:  # what follows nothing at all is no guess
            break
        token, after = favourite
        ids.append(token)
        chances.append(believed(length) * automaton.count(after) / automaton.count(state))
        state, length = after, length + 1
    return Guess(ids, chances)
