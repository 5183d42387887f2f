"""Rows of Parquet and Arrow files, a few at a time. pyarrow is loaded only when there is such a file."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from producer.intake.lines import Line, TooLong
from producer.intake.refused import SourceError
from producer.intake.tables import Column, Form, Recipe, Table

#: Rows that are Python objects at a time.
_BATCH_ROWS = 512
#: How much of a column of a Parquet file is read at a time, in bytes.
_READ_BYTES = 2**20


def parquet_lines(stream: BinaryIO, table: Table, *, name: str, file: str) -> Iterator[Line | TooLong]:
    """The rows of a Parquet file (a stream that seeks) as short lines, numbered from 1.

    Raises:
        SourceError: it is damaged, `table` does not fit it, or pyarrow is not installed.
    """
    with _arrow_errors(name):
        from pyarrow import parquet  # noqa: PLC0415 - slow to load, and optional

        found = parquet.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        columns = _columns(found.schema_arrow)
        recipe = Recipe(table, columns, name)
        names = [columns[place].name for place in recipe.columns]
        batches = found.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False)
        yield from _lines(batches, names, recipe, file)


def arrow_lines(stream: BinaryIO, table: Table, *, is_file: bool, name: str, file: str) -> Iterator[Line | TooLong]:
    """The rows of Arrow's IPC file format (Feather V2, a stream that seeks) or stream format; as `parquet_lines`."""
    with _arrow_errors(name):
        from pyarrow import ipc  # noqa: PLC0415 - slow to load, and optional

        reader = ipc.open_file(stream) if is_file else ipc.open_stream(stream)
        columns = _columns(reader.schema)
        recipe = Recipe(table, columns, name)
        names = [columns[place].name for place in recipe.columns]
        batches = (reader.get_batch(at) for at in range(reader.num_record_batches)) if is_file else reader
        yield from _lines(batches, names, recipe, file)


@contextmanager
def _arrow_errors(name: str) -> Iterator[None]:
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
    except ImportError:
        fix = "pip install 'minedraft-worker[tables]', or convert it to JSON lines"
        raise SourceError(f"{name}: Parquet and Arrow files need pyarrow: {fix}") from None
    try:
        yield
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(f"{name}: it cannot be read; copy it again or write it anew ({reason})") from None


def _lines(batches: Iterable[Any], names: list[str], recipe: Recipe, file: str) -> Iterator[Line | TooLong]:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            rows = batch.slice(start, _BATCH_ROWS)
            for values in zip(*(_values(rows.column(name)) for name in names), strict=True):
                number += 1
                yield recipe.line(number, values, file)


def _values(column: Any) -> list[Any]:
    from pyarrow import string, types  # noqa: PLC0415

    if types.is_temporal(column.type) or types.is_decimal(column.type):
        column = column.cast(string())  # Python has no nanoseconds
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return "\udc80"  # `tables.spelled_line` says of it that it is not UTF-8


def _columns(schema: Any) -> list[Column]:
    return [Column(field.name, _form(field.type), str(field.type)) for field in schema]


def _form(kind: Any) -> Form:
    from pyarrow import types  # noqa: PLC0415

    if types.is_dictionary(kind):
        return _form(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return Form.TEXT
    if types.is_duration(kind) or types.is_interval(kind):
        return Form.OTHER
    if types.is_primitive(kind) or types.is_decimal(kind):
        return Form.VALUE
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _form_of_list(kind.value_type)
    return Form.OTHER


def _form_of_list(kind: Any) -> Form:
    from pyarrow import types  # noqa: PLC0415

    if types.is_integer(kind):
        return Form.TOKENS
    if types.is_struct(kind) and kind.get_field_index("role") >= 0 and _is_json(kind):
        return Form.MESSAGES
    return Form.OTHER


def _is_json(kind: Any) -> bool:
    """True where all that a nested value holds can be written as JSON."""
    from pyarrow import types  # noqa: PLC0415

    if types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_json(kind.value_type)
    form = _form(kind)
    return form is Form.TEXT or (form is Form.VALUE and not types.is_temporal(kind) and not types.is_decimal(kind))
