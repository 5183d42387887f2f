"""The automaton says what is true of its texts: against a search through all of them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.sources.automaton import Automaton, Cursor

#: Few tokens, so that texts repeat themselves and one another.
TEXT = st.lists(st.integers(0, 2), max_size=14)
TEXTS = st.lists(TEXT, max_size=5)
#: Nothing that a text of `TEXT` has.
OTHER = 7


def take_in(automaton: Automaton, text: list[int]) -> None:
    for token in text:
        automaton.append(token)
    automaton.end_text()


def of(*texts: list[int]) -> Automaton:
    automaton = Automaton()
    for text in texts:
        take_in(automaton, text)
    return automaton


def state_of(automaton: Automaton, string: tuple[int, ...]) -> int:
    """Where a string leads, from the beginning; -1: nowhere."""
    state = 0
    for token in string:
        state = automaton.follow(state, token)
        if state < 0:
            return -1
    return state


def places(texts: list[list[int]]) -> Counter[tuple[int, ...]]:
    """How often each string occurs."""
    return Counter(
        tuple(text[start:end])
        for text in texts
        for start in range(len(text))
        for end in range(start + 1, len(text) + 1)
    )


def longest(texts: list[list[int]], row: list[int]) -> int:
    """How many of a row's last tokens are in the texts."""
    known = places(texts)
    return next((size for size in range(len(row), 0, -1) if tuple(row[-size:]) in known), 0)


@given(TEXTS)
def test_it_has_the_strings_of_its_texts_and_how_often_each_occurs(texts: list[list[int]]) -> None:
    automaton, known = of(*texts), places(texts)
    for string, count in known.items():
        assert automaton.count(state_of(automaton, string)) == count
    assert automaton.count(0) == automaton.tokens == sum(map(len, texts))
    assert automaton.texts == len(texts)
    assert automaton.states <= max(1, 2 * automaton.tokens), "two states a token at most"


@given(TEXTS, TEXT)
def test_it_has_no_other_string(texts: list[list[int]], string: list[int]) -> None:
    assert (state_of(of(*texts), tuple(string)) >= 0) == (not string or tuple(string) in places(texts))


@given(TEXTS)
def test_what_follows_most_often(texts: list[list[int]]) -> None:
    automaton, known = of(*texts), places(texts)
    for string in ((), *known):
        after = {token: known[(*string, token)] for token in range(3) if (*string, token) in known}
        favourite = automaton.favourite(state_of(automaton, string))
        if favourite is None:
            assert not after
        else:
            token, state = favourite
            assert after[token] == max(after.values()) == automaton.count(state)


@given(st.lists(st.integers(0, 40), min_size=200, max_size=600))
def test_of_many_followers_the_favourite_is_one_of_the_most_frequent(text: list[int]) -> None:
    automaton, seen = Automaton(), Counter[int]()
    for token in text:
        automaton.append(token)
        seen[token] += 1
        favourite = automaton.favourite(0)
        assert favourite is not None
        assert seen[favourite[0]] >= max(seen.values()) - seen.total() / 9


@given(st.lists(st.tuples(st.booleans(), TEXT), max_size=8))
def test_a_cursor_stands_at_the_row_s_longest_end_also_when_texts_come_meanwhile(
    parts: list[tuple[bool, list[int]]],
) -> None:
    automaton, texts, row = Automaton(), list[list[int]](), list[int]()
    cursor = Cursor(automaton)
    for is_text, tokens in parts:
        if is_text:
            take_in(automaton, tokens)
            texts.append(tokens)
        else:
            row.extend(tokens)
        state, length = cursor.read(row)
        known = longest(texts, row)
        assert length == known or 16 <= length < known
        assert state == state_of(automaton, tuple(row[len(row) - length :]))


@given(TEXTS, TEXT, TEXT, st.integers(1, 4))
def test_a_cursor_stays_right_while_a_text_is_taken_in(
    texts: list[list[int]], half: list[int], row: list[int], enough: int
) -> None:
    automaton = of(*texts)
    cursor = Cursor(automaton, enough)
    for end in range(len(row) + 1):
        state, length = cursor.read(row[:end])
        assert length >= min(enough, longest(texts, row[:end]))
        if end < len(half):
            automaton.append(half[end])
        state, length = cursor.read(row[:end])
        assert state == state_of(automaton, tuple(row[end - length : end])), (
            "also when the state it stood at was parted"
        )


def test_a_favourite_of_many_gives_way() -> None:
    automaton = Automaton()
    for token in [*range(40), *[5] * 10]:
        automaton.append(token)
        assert automaton.favourite(0)
    assert automaton.favourite(0) == (5, state_of(automaton, (5,)))


def test_a_row_is_read_once_and_not_from_its_beginning() -> None:
    class Row(list[int]):
        looked_at = 0

        def __getitem__(self, key: slice) -> list[int]:  # type: ignore[override]
            found = super().__getitem__(key)
            self.looked_at += len(found)
            return found

    automaton = of([1, 2, 3] * 20)
    cursor, row = Cursor(automaton), Row([1, 2, 3] * 1000)
    assert cursor.read(row)[1] == 16
    row.extend([1, 2])
    assert cursor.read(row)[1] == 18
    assert row.looked_at == 18
    take_in(automaton, [OTHER])
    row.append(OTHER)
    assert cursor.read(row)[1] == 1
    assert row.looked_at == 19, "what is long enough is not looked for anew"


def test_a_token_says_how_long_it_took() -> None:
    automaton = Automaton()
    steps = [automaton.append(1) for _ in range(500)]
    assert steps[499] - steps[0] == 499, "each end of the text is counted"
    assert max(of([]).append(token) for token in range(500)) == steps[0]
