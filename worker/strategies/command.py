"""The command `worker strategies`."""

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from worker.strategies.catalogue import ENTRIES

_FOR = """\
Lists how rows can take turns, where drafts can be from, how long they can be and which can be verified, by the flags of
`worker run`; the four go together unless `worker run` says that they do not.
"""

#: Characters that the table takes.
_WIDTH = 140


def run(argv: Sequence[str]) -> int:
    """Print the table."""
    argparse.ArgumentParser(
        prog="worker strategies", description=_FOR, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    table = Table(title="strategies; a text is that of plain decoding with each that is lossless")
    for column in ("flag", "value", "what it does", "needs", "lossless", "runners"):
        table.add_column(column, no_wrap=column in ("flag", "value"))
    before = ENTRIES[0].flag
    for entry in ENTRIES:
        if entry.flag != before:
            table.add_section()
        first = entry.flag if entry.flag != before or entry is ENTRIES[0] else ""
        before = entry.flag
        lossless = "yes" if entry.lossless else "no"
        table.add_row(first, entry.name, entry.what, entry.needs, lossless, ", ".join(entry.runners))
    Console(width=_WIDTH).print(table)  # whatever the terminal's: a table that is cut says nothing
    return 0
