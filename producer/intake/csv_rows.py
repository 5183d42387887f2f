"""Rows of a CSV or TSV file: UTF-8, a header first, fields quoted as in RFC 4180; in bounded memory."""

import csv
from collections.abc import Iterator
from typing import BinaryIO

from producer.intake.lines import MAX_LINE_BYTES, Line, TooLong
from producer.intake.refused import SourceError
from producer.intake.tables import Column, Recipe, Table, spelled_line
from producer.record.models import RowFault

_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def csv_lines(stream: BinaryIO, delimiter: str, table: Table, *, name: str, file: str) -> Iterator[Line | TooLong]:
    """The rows below the header as short lines, numbered from 1; blank ones are skipped but counted.

    A row of more or fewer fields than the header, and one that is not UTF-8, is a line with a fault.

    Raises:
        SourceError: it is no such file, or its quotes do not match: where rows begin is unknown from there on.
        OSError: it cannot be read.
    """
    csv.field_size_limit(MAX_LINE_BYTES)  # for the whole process; nothing else here reads CSV
    reader = csv.reader(_texts(stream, name), delimiter=delimiter, strict=True)
    number = 0
    try:
        header = next(reader, None)
        if not header:
            raise SourceError(f"{name}: its first line must name the columns, and is empty")
        recipe = Recipe(table, [Column(title) for title in header], name)
        for number, row in enumerate(reader, 1):
            if not row:
                continue
            if len(row) != len(header):
                fault = RowFault("ragged_row", f"the row has {len(row)} fields, the header {len(header)}")
                yield spelled_line(number, {"row": row}, file, fault)
            else:
                yield recipe.line(number, [row[place] for place in recipe.columns], file)
    except csv.Error as error:
        reason = f"{error}; is a quote missing or too many?"
        if "new-line character" in str(error):
            reason = "a carriage return stands outside quotes; put fields that hold one in quotes"
        where = f"row {number + 1} (it ends on line {reader.line_num})"
        raise SourceError(f"{name}: {where} is not CSV: {reason}") from None


def _texts(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines, with their endings. Only b"\\n" ends one; bytes that are not UTF-8 become lone surrogates."""
    first = True
    while data := stream.readline(MAX_LINE_BYTES + 1):
        if len(data) > MAX_LINE_BYTES:
            raise SourceError(f"{name}: a line is longer than {MAX_LINE_BYTES >> 20} MiB; is it a CSV file?")
        if first:
            if data.startswith(_UTF_16):
                raise SourceError(f"{name}: it is UTF-16; save it as CSV in UTF-8")
            data, first = data.removeprefix(_BOM), False
        yield data.decode(errors="surrogateescape")
