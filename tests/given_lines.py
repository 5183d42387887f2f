"""Lines of a file as a test gives them."""

import io
from collections.abc import Iterator

from producer.intake.lines import Line, TooLong, numbered_lines


class GivenLines:
    """A `Source` of these bytes."""

    def __init__(self, data: bytes, *, name: str = "test", reopens: bool = True) -> None:
        self.data, self.name, self.reopens = data, name, reopens

    def lines(self) -> Iterator[Line | TooLong]:
        return numbered_lines(io.BytesIO(self.data))
