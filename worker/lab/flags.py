"""What the lab's commands take after a flag: from text to a value, or argparse's usage error with a reason."""

import math
from argparse import ArgumentTypeError

from worker.engine.placement import parse_devices

#: What a prompt or an answer can be asked to have, at most.
_LONGEST = 1_000_000_000


def count(text: str) -> int:
    """A number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Some, as `8,16`."""
    return tuple(map(count, text.split(",")))


def span(text: str) -> range:
    """One, as `3`, or all from one to another, as `1-5`."""
    first, _, last = text.partition("-")
    numbers = range(count(first), count(last or first) + 1)
    if not numbers:
        raise ArgumentTypeError(f"{text!r} holds no number")
    return numbers


def lengths(text: str) -> range:
    """One length for all, as `64`, or any from one to another, as `4..512`; not above a billion."""
    least, dots, most = text.partition("..")
    try:
        found = range(count(least), count(most if dots else least) + 1)
    except ArgumentTypeError:
        found = range(0)
    if not found:
        raise ArgumentTypeError(f"{text!r} is neither a number above 0 nor a range of such, as 4..512")
    if found[-1] > _LONGEST:
        raise ArgumentTypeError(f"{text!r} is more than {_LONGEST:,}")
    return found


def tokens(text: str) -> int:
    """How many, or none."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number of tokens")
    return int(text)


def ms(text: str) -> float:
    """A time, not negative."""
    number = float(text) if text.replace(".", "", 1).isdigit() else math.nan
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{text!r} is no time in ms")
    return number


def cpus(text: str) -> tuple[int, ...]:
    """Cores, as `0-5,7`."""
    try:
        return parse_devices(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
