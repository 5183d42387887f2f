"""The drafts that a row gets in place of the draft model's."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from worker.strategies.seam import Guess, Strategy
from worker.strategies.sources import Drafts, make
from worker.strategies.sources.mixed import Mixed


class Told:
    """A source that finds what a test says."""

    def __init__(self, *chances: float) -> None:
        self.chances = list(chances)
        self.gone: list[tuple[str, bool]] = []
        self.asked = 0

    def find(self, request: str, job: str, tokens: Sequence[int], prompt: int, most: int) -> Guess:
        self.asked += 1
        return Guess(list(range(len(self.chances)))[:most], self.chances[:most])

    def ended(self, request: str, job: str, tokens: Sequence[int], prompt: int, *, whole: bool) -> None:
        self.gone.append((request, whole))


def draft(drafts: Drafts, most: int = 5, row: str = "row", modelled: int | None = None) -> list[int] | None:
    return drafts.draft(row, "job", [1, 2, 3], 1, most, modelled=most if modelled is None else modelled)


def test_the_draft_model_alone_has_no_other_drafts() -> None:
    drafts = make(Strategy())
    assert draft(drafts) is None
    drafts.verified("row", 4, 2)
    drafts.ended("row", "job", [1], 1, whole=True)


def test_what_a_source_finds_is_verified_as_far_as_it_is_likely() -> None:
    assert draft(Drafts({"a": Told(0.9, 0.9, 0.4, 0.4)})) == [0, 1, 2], "0.9 x 0.9 x 0.4 is likely enough"
    assert draft(Drafts({"a": Told(0.9, 0.9, 0.9)}), most=2) == [0, 1]
    assert Drafts({"a": Told(0.9, 0.9, 0.9)}).draft("row", "job", [1, 2], 1, 5, modelled=0, price=0.8) == [0, 1]
    assert draft(Drafts({"a": Told()})) is None
    assert draft(Drafts({"a": Told(0.9)}), most=0) is None, "there is no place for any"


def test_what_is_unlikely_is_tried_now_and_then_and_wins_if_it_is_right() -> None:
    drafts = Drafts({"a": Told(0.1, 0.1)})
    tried = []
    for _ in range(16 * 300):
        found = draft(drafts)
        tried.append(len(found or ()))
        if found:
            drafts.verified("row", len(found), len(found))
    assert tried[:16] == [0] * 15 + [1]
    assert tried[-1] == 2, "it was right each time"


def test_a_source_that_is_wrong_is_not_asked_for_long() -> None:
    drafts = Drafts({"a": Told(0.9)})
    for _ in range(640):
        if draft(drafts):
            drafts.verified("row", 1, 0)
    assert draft(drafts) is None


def test_what_is_verified_is_counted_for_the_source_it_was_from() -> None:
    class Likelier(Told):
        def find(self, *args: Any) -> Guess:
            return Guess([7, 8], super().find(*args).chances)

    drafts = Drafts({"good": Told(0.8, 0.8), "bad": Likelier(0.9, 0.9)}, Mixed())
    given = []
    for _ in range(100):
        given.append(draft(drafts, modelled=1))
        drafts.verified("row", 2 if given[-1] else 1, 2 if given[-1] == [0, 1] else 0)
    assert given[0] == [7, 8]
    assert given[10:].count([0, 1]) > 80
    assert 0 < given[10:].count(None) < 6, "what stands back is tried now and then"
    assert 0 < given[10:].count([7, 8]) < 6


def test_the_draft_model_is_a_source_like_others() -> None:
    drafts = Drafts({"a": Told(0.7, 0.7)}, Mixed())
    assert draft(drafts, modelled=0) == [0, 1], "which has none for this call"
    assert draft(drafts, most=5, row="new") is None, "0.6 + 0.36 + ... of the model is more than 0.7 + 0.49"
    for _ in range(30):
        if draft(drafts) is None:
            drafts.verified("row", 5, 0)
    later = [draft(drafts) for _ in range(20)]
    assert later.count([0, 1]) > 15, "the model was wrong each time"


def test_fewer_may_be_verified_than_were_given() -> None:
    mixed = Mixed()
    drafts = Drafts({"a": Told(0.9, 0.9, 0.9)}, mixed)
    for _ in range(200):
        assert draft(drafts, modelled=0) == [0, 1, 2]
        drafts.verified("row", 1, 1)
    assert mixed.accepted("row", "job", "a", [1.0]) == 1, "nothing is known of the others, but the first was right"


def test_a_row_that_ended_has_ended_for_all_sources() -> None:
    one, other = Told(0.9), Told(0.9)
    mixed = Mixed()
    drafts = Drafts({"one": one, "other": other}, mixed)
    draft(drafts, modelled=0)
    drafts.verified("row", 1, 0)
    draft(drafts, modelled=0)
    drafts.ended("row", "job", [1], 1, whole=False)
    assert one.gone == other.gone == [("row", False)]
    assert mixed.accepted("row", "job", "one", [1.0]) == mixed.accepted("new", "job", "one", [1.0])
    shown = [mixed.accepted("new", "job", source, [1.0]) for source in ("one", "other")]
    drafts.verified("row", 1, 0)  # a result that comes after
    assert [mixed.accepted("new", "job", source, [1.0]) for source in ("one", "other")] == shown


def test_without_mixing_the_first_source_that_has_something_is_enough() -> None:
    nothing, something, more = Told(), Told(0.5), Told(0.9, 0.9)
    assert draft(Drafts({"a": nothing, "b": something, "c": more})) == [0]
    assert (nothing.asked, something.asked, more.asked) == (1, 1, 0)


def test_the_next_source_is_asked_where_the_first_one_is_not_sure() -> None:
    for chance, asked in ((0.97, 0), (0.8, 1)):
        first, second = Told(*[chance] * 4), Told(0.9)
        drafts = Drafts({"first": first, "second": second}, Mixed())
        draft(drafts, most=4, modelled=0)
        assert (first.asked, second.asked) == (1, asked)


def row_of(kind: str, dice: random.Random) -> list[int]:
    """A prompt of 100 tokens and an answer of 200, which repeats the prompt, or the job's template, or neither."""
    prompt = [dice.randrange(10_000) for _ in range(100)]
    template = list(range(20_000, 20_200))
    new = [dice.randrange(10_000) for _ in range(200)]
    return prompt + {"prompt": prompt * 2, "template": template, "new": new}[kind]


def calls(source: str, kinds: Sequence[str], acceptance: float) -> int:
    """Calls that it takes to write 40 rows, with at most 4 drafts of a model that is right with `acceptance`."""
    dice, drafts, total = random.Random(1), make(Strategy(source=source)), 0
    for number in range(40):
        row = row_of(kinds[number % len(kinds)], dice)
        done = 100
        while done < len(row):
            total += 1
            found = drafts.draft(f"{number}", "job", row[:done], 100, 4, modelled=4)
            if found is None:
                accepted = next((place for place in range(4) if dice.random() >= acceptance), 4)
                drafts.verified(f"{number}", 4, accepted)
            else:
                right = [ours == theirs for ours, theirs in zip(found, row[done:], strict=False)]
                accepted = right.index(False) if False in right else len(right)
                drafts.verified(f"{number}", len(found), accepted)
            done += accepted + 1
        drafts.ended(f"{number}", "job", row, 100, whole=True)
    return total


@pytest.mark.parametrize("kinds", [("prompt",), ("template",), ("new",), ("prompt", "template", "new")])
@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.95])
def test_mixed_is_hardly_behind_the_best_source_and_ahead_where_rows_differ(
    kinds: Sequence[str], acceptance: float
) -> None:
    of = {source: calls(source, kinds, acceptance) for source in ("model", "ngram", "suffix", "mixed")}
    assert of["mixed"] <= 1.06 * min(of.values()), of
    if len(kinds) > 1 and acceptance < 0.9:
        assert of["mixed"] < 0.92 * min(of["model"], of["ngram"], of["suffix"]), of
