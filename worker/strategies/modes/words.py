"""Choices in words, for logs."""

from worker.strategies.seam import Choice, Way

_WAYS = {Way.TWO: "two batches", Way.ONE: "one batch", Way.AHEAD: "one batch drafted ahead"}


def in_words(choice: Choice) -> str:
    """As "two batches, 3 drafts"."""
    drafts = f"{choice.drafts} draft{'s' * (choice.drafts != 1)}" if choice.drafts else "no drafts"
    return f"{_WAYS[choice.way]}, {drafts}"


def change(choice: Choice, rate: float, before: float) -> str:
    """Why a choice was made: what it and the one before it are predicted to give.

    Args:
        choice: the new one.
        rate: its tokens a millisecond.
        before: those of the one before.
    """
    return f"{in_words(choice)}: {1e3 * rate:.0f} tokens/s by measured times, before {1e3 * before:.0f}"
