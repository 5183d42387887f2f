"""What a watched job looks like where no terminal is drawn on: lines for people, or for programs."""

import sys
import time
from typing import Protocol, Self

from producer.cli.common import print_json, say
from producer.cli.moment_text import one_line
from producer.progress.course import Moment

#: How often a line is printed.
LINE_SECONDS = 5.0


class View(Protocol):
    """Shows moments; a context that puts a terminal right again at its end."""

    last: Moment | None

    def show(self, moment: Moment) -> None:
        """The job is like this now; called several times a second."""
        ...

    def end(self, moment: Moment) -> None:
        """The job ended like this."""
        ...


class _Paced:
    """Prints now and then."""

    def __init__(self) -> None:
        self.last: Moment | None = None
        self._due = time.monotonic() + LINE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, moment: Moment) -> None:
        self.last = moment
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            self._print(moment)

    def end(self, moment: Moment) -> None:
        self._print(moment)

    def _print(self, moment: Moment) -> None:
        raise NotImplementedError


class Lines(_Paced):
    """A line now and then, when there is something new to say, and one at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._printed = ""

    def _print(self, moment: Moment) -> None:
        line = one_line(moment)
        if line != self._printed:
            say(line)
        self._printed = line


class JsonLines(_Paced):
    """An object now and then on a line of standard output, and one at the end."""

    def _print(self, moment: Moment) -> None:
        print_json(moment.to_json())
        sys.stdout.flush()
