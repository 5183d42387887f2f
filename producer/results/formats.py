"""What results can be written as, and which of it a file's name asks for."""

from enum import StrEnum
from pathlib import PurePath


class Format(StrEnum):
    """What a results file holds for each row."""

    OPENAI = "openai"
    """A line of OpenAI's batch output file."""
    FLAT = "flat"
    """A line with a JSON object of `shapes.COLUMNS`."""
    PARQUET = "parquet"
    """A row of a table: the same columns, and `response` as JSON text."""


def format_of(path: PurePath) -> Format:
    """The format that a file's name asks for."""
    name = path.with_suffix("") if packing(path.name) else path
    return Format.PARQUET if name.suffix.lower() == ".parquet" else Format.OPENAI


def packing(name: str) -> str:
    """How a file of this name is compressed: `.gz`, `.zst`, or "" for not at all."""
    suffix = PurePath(name).suffix.lower()
    return suffix if suffix in (".gz", ".zst") else ""
