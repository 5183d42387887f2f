"""A watched job on a terminal: a bar, and a line for each worker."""

from typing import Self

from rich import live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from producer.cli.common import printable
from producer.cli.moment_text import details, one_line, worker_columns
from producer.progress.course import Moment

#: Workers that have a line of their own.
_WORKERS = 12
_BAR_WIDTH = 40


class Live:
    """Drawn again at each moment; what others say meanwhile scrolls by above. At its end one line stays."""

    def __init__(self, console: Console) -> None:
        self.last: Moment | None = None
        self._console = console
        self._live = live.Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        self._live.stop()

    def show(self, moment: Moment) -> None:
        """Draw this."""
        self.last = moment
        self._live.update(drawn(moment), refresh=True)

    def end(self, moment: Moment) -> None:
        """Leave this on the terminal."""
        self._live.stop()
        self._console.print(_first_line(moment), Text(one_line(moment)), soft_wrap=True, sep="\n")


def drawn(moment: Moment) -> RenderableType:
    """The bar, the rates, the workers."""
    return Group(_first_line(moment), Text(", ".join(details(moment))), _workers(moment))


def _first_line(moment: Moment) -> RenderableType:
    job = moment.job
    line = Table.grid(padding=(0, 1))
    line.add_row(
        Text(printable(f"{job.job_id} ({job.name})")),
        ProgressBar(total=max(job.rows, 1), completed=job.done, width=_BAR_WIDTH),
        Text(f"{job.done:,}/{job.rows:,} rows"),
        Text(f"{job.failed:,} failed", style="red" if job.failed else ""),
        Text(job.state),
    )
    return line


def _workers(moment: Moment) -> RenderableType:
    lines = Table.grid(padding=(0, 2, 0, 0))
    for worker in moment.workers[:_WORKERS]:
        lines.add_row(*map(Text, worker_columns(worker)))
    if len(moment.workers) > _WORKERS:
        lines.add_row(Text(f"and {len(moment.workers) - _WORKERS} more workers"))
    return lines
