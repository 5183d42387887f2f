"""Jobs as a table on standard output."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from producer.cli.common import printable
from producer.record.jobs import JobStatus

#: Columns where no terminal says how many there are: nothing is cut off for `grep`.
_PIPE_WIDTH = 200


def print_jobs(found: Sequence[JobStatus]) -> None:
    """One line for each job, and why a job has paused itself."""
    table = Table(box=None, pad_edge=False)
    for name in ("job", "name", "model", "state"):
        table.add_column(name)
    for name in ("priority", "rows", "done", "failed", "prompt tokens", "completion tokens"):
        table.add_column(name, justify="right")
    for job in found:
        texts = (printable(text) for text in (job.job_id, job.name, job.model, job.state))
        counters = (job.priority, job.rows, job.done, job.failed, job.prompt_tokens, job.completion_tokens)
        table.add_row(*texts, *(f"{counter:,}" for counter in counters))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:  # rich itself would end the program where nobody reads
        console.print(table)
    sys.stdout.write(drawn.get())
    for job in found:
        if job.reason:
            sys.stdout.write(f"{printable(job.job_id)} has paused itself: {printable(job.reason)}\n")
