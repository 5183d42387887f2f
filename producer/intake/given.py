"""What a program submits, whatever it is, as a source of lines."""

import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from producer.errors import Refused
from producer.intake.in_memory import ROWS, RowsAtHand
from producer.intake.sources import Source, SourceError, open_source

Row: TypeAlias = Mapping[str, Any]
"""What a line of a file holds, as Python values: `{"prompt": ...}`, `{"messages": [...]}` or an OpenAI Batch line."""

File: TypeAlias = str | os.PathLike[str]
"""A path, or a pattern such as `data/*.jsonl`."""

Given: TypeAlias = File | Iterable[File] | Iterable[Row] | Source
Submittable: TypeAlias = Given | AsyncIterable[Row]


def source_of(given: Given) -> Source:
    """The lines of files, or of rows that are at hand; which of them is told by the first one.

    Raises:
        Refused: it is neither, or a file is no source of rows.
        OSError: a file cannot be read.
    """
    if isinstance(given, str | os.PathLike):
        return _files([given])
    if isinstance(given, Mapping):
        raise Refused("one row alone is given; put it in a list")
    if not isinstance(given, Iterable):
        if hasattr(given, "lines"):
            return given
        raise Refused(f"rows are expected, or files, not {type(given).__name__}")
    first, every = _looked_at(given)
    return _files(every) if isinstance(first, str | os.PathLike) else RowsAtHand(every, ROWS)


def _looked_at(given: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first item, or None, and all of them."""
    if isinstance(given, Sequence):
        return (given[0] if given else None), given
    left = iter(given)
    for first in left:
        return first, chain([first], left) if left is given else given
    return None, ()


def _files(paths: Iterable[Any]) -> Source:
    try:
        return open_source([os.fspath(path) for path in paths])
    except SourceError as error:
        raise Refused(str(error)) from None
    except TypeError:
        raise Refused("files and rows are mixed; give either") from None
