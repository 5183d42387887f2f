"""Durations as people write them."""

import pytest

from producer.cli.durations import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0s", 0), ("30s", 30), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("10000d", 864_000_000)],
)
def test_what_is_meant(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 d", "7D", "-7d", "1.5h", "7d7h", "7d\n", "10001d", "99999999999s", "\u0667d"]
)
def test_what_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="d") as raised:
        seconds(text)
    assert repr(text) in str(raised.value)
