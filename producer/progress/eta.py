"""When a job will be done, once that can be said."""

from producer.progress.pace import Pace

#: Nothing is said from fewer moves of the counter (unless they were a good part of the job), seconds, or rows.
_MOVES = 10
_GOOD_PART = 0.15
_SECONDS = 3.0
_ROWS = 16

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def seconds_left(pace: Pace, now: float, *, done: int, rows: int) -> float | None:
    """How long the rows that are left take at this pace; None while nobody can know."""
    part = _GOOD_PART * rows
    if pace.followed < _SECONDS or pace.gained < min(_ROWS, part) or (pace.moves < _MOVES and pace.gained < part):
        return None
    if pace.stalled(now):
        return None
    return max((rows - done) / pace.known - pace.ahead(now), 0.0)


def words(seconds: float) -> str:
    """A time that is estimated, no finer than it is worth: `40 s`, `about 3 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < _MINUTE - 2.5:
        return f"{max(5 * round(seconds / 5), 5)} s"
    if seconds < _HOUR - _MINUTE / 2:
        return f"about {max(round(seconds / _MINUTE), 1)} min"
    if seconds < _DAY:
        hours, minutes = divmod(10 * round(seconds / _MINUTE / 10), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / _HOUR), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
