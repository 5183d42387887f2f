"""Whether pictures can be drawn: matplotlib is an extra of its own, which a worker does without."""

from importlib.util import find_spec


class PictureError(Exception):
    """There is nothing to draw with; the message is one line for the user."""


def require_matplotlib() -> None:
    """Find out before minutes of measuring.

    Raises:
        PictureError: it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise PictureError("--png needs matplotlib: pip install matplotlib")
