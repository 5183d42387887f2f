"""How close two logits must be for rounding to decide."""

import pytest

from worker.verify.ties import TieRule


@pytest.mark.parametrize(
    ("dtype", "size", "limit"),
    [
        ("float32", 30.0, 1e-4),
        ("bfloat16", 16.0, 0.125),  # the step between two neighbours at 16
        ("float16", 16.0, 2**-6),
        ("bfloat16", 0.0, 1e-4),
    ],
)
def test_the_dtype_decides_and_the_logits_size(dtype: str, size: float, limit: float) -> None:
    assert TieRule(dtype).limit(size) == limit


def test_the_user_s_own_limit_wins() -> None:
    rule = TieRule("bfloat16", 0.0)
    assert rule.limit(100.0) == 0.0
    assert "--tie-gap" in rule.words


def test_the_rule_is_said_in_words() -> None:
    assert "float32" in TieRule("float32").words
    assert "0.0078125 of the larger one" in TieRule("bfloat16").words
