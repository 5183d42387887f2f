"""All that texts say, as a suffix automaton: which token follows most often after the longest end that was seen before.

The automaton of Blumer et al. (Theoretical Computer Science 40, 1985) for several texts. A state is a set of strings
that end at the same places of all texts; those of one state are the ends of the longest of them, down to a length
above that of the state that it links to. From a state a token leads to the state of the strings with it appended, and
state 0 is that of the empty string. A text is taken in token by token; each adds two states at most.

**Counts.** A state counts the places where its strings end. A new place is one more for the state that was reached and
all that it links to: a handful of steps in natural text, and as many as the text has tokens where one token repeats for
ever. So tokens are given one by one, each says what it took, and the caller stops when its time is up.

**Memory.** Most states are followed by one token only, so that one is in flat arrays, and the others are in
dictionaries of the states that have them. Measured on words of English, and on rows of one template: README.
"""

from array import array
from collections.abc import Sequence

#: Of a state with more followers than this the most frequent one is looked for anew only when the state's count has
#: grown by an eighth: one with a thousand followers would cost 100 us each time.
_FEW = 16
_NONE = -1


class Automaton:
    """Grows by texts; a cursor's state stays valid while it grows (`Cursor`)."""

    def __init__(self) -> None:
        self._length, self._link, self._count = array("i", [0]), array("i", [_NONE]), array("i", [0])
        self._token, self._target = array("i", [_NONE]), array("i", [_NONE])
        self._more: dict[int, dict[int, int]] = {}
        self._favourites: dict[int, tuple[int, int]] = {}
        self._at = 0
        self.texts = 0
        """Texts that were taken in whole."""
        self.tokens = 0
        """Tokens taken in, of all texts."""

    @property
    def states(self) -> int:
        """How many there are, the empty string's among them."""
        return len(self._length)

    def append(self, token: int) -> int:
        """One more token, from 0, of the text that is being taken in.

        Returns:
            The steps that it took; one is about 0.2 us.
        """
        reached = self._extend(self._at, token)
        self._at = reached
        self.tokens += 1
        count, link = self._count, self._link
        steps = 16  # what the rest takes, in the steps of this loop
        while reached:
            count[reached] += 1
            reached = link[reached]
            steps += 1
        return steps

    def end_text(self) -> None:
        """What is appended next begins another text."""
        self._at = 0
        self.texts += 1

    def follow(self, state: int, token: int) -> int:
        """The state that a token leads to, or -1."""
        if self._token[state] == token:
            return self._target[state]
        more = self._more.get(state)
        return more.get(token, _NONE) if more else _NONE

    def link(self, state: int) -> int:
        """The state of the longest end of a state's strings that ends elsewhere, too; -1 for state 0."""
        return self._link[state]

    def length(self, state: int) -> int:
        """Tokens of a state's longest string."""
        return self._length[state]

    def count(self, state: int) -> int:
        """Places of all texts where a state's strings end; of the empty string: the tokens of all texts."""
        return self._count[state] if state else self.tokens

    def favourite(self, state: int) -> tuple[int, int] | None:
        """The token that follows most often, the first seen of equals, and the state that it leads to.

        None where nothing follows. Exact for states with up to 16 followers; of one with more it may be one that was
        ahead when the state had an eighth less to its count.
        """
        token = self._token[state]
        if token == _NONE:
            return None
        more = self._more.get(state)
        if not more:
            return token, self._target[state]
        if len(more) < _FEW:
            token = self._most_frequent(state, more)
        else:
            counted, token = self._favourites.get(state, (0, _NONE))
            now = self.count(state)
            if token == _NONE or 8 * now > 9 * counted:
                token = self._most_frequent(state, more)
                self._favourites[state] = now, token
        return token, self.follow(state, token)

    def _most_frequent(self, state: int, more: dict[int, int]) -> int:
        count = self._count
        best, most = self._token[state], count[self._target[state]]
        for token, target in more.items():
            if count[target] > most:
                best, most = token, count[target]
        return best

    def _extend(self, state: int, token: int) -> int:
        """The state of a text's beginning with a token appended, given that of the beginning."""
        target = self.follow(state, token)
        if target != _NONE:  # seen before, in another text
            return self._of_length(state, token, target)
        new = self._new(self._length[state] + 1, 0, 0)
        while state != _NONE and self._lead_new(state, token, new):
            state = self._link[state]
        if state != _NONE:
            self._link[new] = self._of_length(state, token, self.follow(state, token))
        return new

    def _of_length(self, state: int, token: int, target: int) -> int:
        """The state of a state's longest string and a token, which `target` holds: a part of it, if it holds more."""
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        part = self._new(length, self._link[target], self._count[target])
        self._token[part], self._target[part] = self._token[target], self._target[target]
        if target in self._more:
            self._more[part] = dict(self._more[target])
        self._link[target] = part
        while state != _NONE and self.follow(state, token) == target:
            self._lead(state, token, part)
            state = self._link[state]
        return part

    def _new(self, length: int, link: int, count: int) -> int:
        self._length.append(length)
        self._link.append(link)
        self._count.append(count)
        self._token.append(_NONE)
        self._target.append(_NONE)
        return len(self._length) - 1

    def _lead_new(self, state: int, token: int, target: int) -> bool:
        """Let a token lead to a state, unless it leads to one already."""
        first = self._token[state]
        if first == _NONE:
            self._token[state], self._target[state] = token, target
            return True
        if first == token:
            return False
        more = self._more.get(state)
        if more is None:
            self._more[state] = {token: target}
            return True
        return more.setdefault(token, target) == target

    def _lead(self, state: int, token: int, target: int) -> None:
        """Let a token lead to another state than it does."""
        if self._token[state] == token:
            self._target[state] = target
        else:
            self._more[state][token] = target


class Cursor:
    """Stands at the longest end of a row that an automaton has.

    Where that is shorter than `enough` tokens it is exact, in texts taken in whole. Of a longer one it may be a part,
    of `enough` tokens at least: text that came later may hold more of the row, which would cost more than it tells.
    """

    def __init__(self, automaton: Automaton, enough: int = 16) -> None:
        self.automaton, self._enough = automaton, enough
        self._state = self._length = self._read = 0
        self._texts = _NONE

    def read(self, row: Sequence[int]) -> tuple[int, int]:
        """Go to the end of a row, which has only grown since the last time.

        Returns:
            The state, and how many of the row's last tokens are in it.
        """
        automaton = self.automaton
        self._settle()
        if self._texts != automaton.texts and self._length < self._enough:
            self._state, self._length, self._read = 0, 0, max(0, len(row) - self._enough)
        self._texts = automaton.texts
        state, length = self._state, self._length
        for token in row[self._read :]:
            while (after := automaton.follow(state, token)) == _NONE and state:
                state = automaton.link(state)
                length = automaton.length(state)
            state, length = (after, length + 1) if after != _NONE else (0, 0)
        self._state, self._length, self._read = state, length, len(row)
        return state, length

    def _settle(self) -> None:
        """Go where the string is now: a state gives its shorter strings to a new one that it then links to."""
        automaton = self.automaton
        while self._state and self._length <= automaton.length(automaton.link(self._state)):
            self._state = automaton.link(self._state)
