"""Durations as people write them."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

#: Longer ones are slips (seconds): about 27 years.
_MOST = 10_000 * 86_400


def seconds(text: str) -> int:
    """How many seconds `30s`, `15m`, `12h` or `7d` are.

    Raises:
        ValueError: it is none of these; the message is for the user.
    """
    found = re.fullmatch(r"([0-9]{1,10})([smhd])", text)
    if found is None:
        raise ValueError(f"{text!r} is no duration such as 30s, 15m, 12h or 7d")
    duration = int(found[1]) * _SECONDS[found[2]]
    if duration > _MOST:
        raise ValueError(f"{text!r} is longer than 10000d")
    return duration
