"""When another text counts as plain decoding's."""

import pytest
from gpu.compare import TIE, Likeness, Plain, compare, first_difference, likeness, plain_of

PLAIN = Plain([5, 6, 7, 8], [15, 16, 17, 18], [0.5, 0.009, 2.0, 0.0])
BF16 = TIE["bfloat16"]


@pytest.mark.parametrize(
    ("tokens", "tie", "what"),
    [
        ([5, 6, 7, 8], BF16, Likeness.SAME),
        ([5, 16, 1, 2], BF16, Likeness.TIE),
        ([5, 6, 7, 18], BF16, Likeness.TIE),
        ([5, 16, 7, 8], TIE["float32"], Likeness.OTHER),  # not that close
        ([5, 9, 7, 8], BF16, Likeness.OTHER),  # a tie, but of other tokens
        ([15, 6, 7, 8], BF16, Likeness.OTHER),  # the first difference counts
        ([5, 6, 17, 18], BF16, Likeness.OTHER),
        ([5, 6, 7], BF16, Likeness.OTHER),
        ([5, 6, 7, 8, 9], BF16, Likeness.OTHER),
        ([], BF16, Likeness.OTHER),
    ],
)
def test_a_text_may_part_at_a_tie_only(tokens: list[int], tie: float, what: Likeness) -> None:
    assert likeness(PLAIN, tokens, tie) is what


def test_where_two_texts_part() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [1]) == 1
    assert first_difference([], []) is None


def test_the_two_likeliest_tokens_are_read_from_an_answer() -> None:
    choice = {
        "token_ids": [5, 6],
        "logprobs": {
            "top_logprobs": [
                {"token_id:5": -0.1, "token_id:9": -2.5},
                {"token_id:3": -0.7, "token_id:6": -0.7, "token_id:8": -0.705},
            ]
        },
    }
    assert plain_of(choice) == Plain([5, 6], [9, 3], [pytest.approx(2.4), 0.0])


def test_rows_are_counted_and_what_is_wrong_is_said() -> None:
    found = compare([PLAIN] * 4, [[5, 6, 7, 8], [5, 16, 0, 0], [4, 6, 7, 8], [5, 6]], BF16)
    assert (found.same, found.ties) == (1, 1)
    assert found.others == ["row 2: token 0 is 4, not 5; next likely was 15, 0.5 below", "row 3: 2 tokens, not 4"]
    assert str(found) == f"1 the same, 1 until a tie, 2 others; the first: {found.others[0]}"
    assert str(compare([PLAIN], [PLAIN.tokens], BF16)) == "1 the same, 0 until a tie, 0 others"


def test_a_row_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare([PLAIN, PLAIN], [PLAIN.tokens], BF16)
