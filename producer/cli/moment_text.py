"""A moment of a job in words."""

from producer.cli.common import printable
from producer.progress import eta
from producer.progress.course import Moment
from producer.progress.workers import WorkerAtWork


def one_line(moment: Moment) -> str:
    """All of it on a line: `JOB: state, done/rows rows, N failed, ...`."""
    job = moment.job
    return ", ".join(
        (f"{job.job_id}: {job.state}", f"{job.done}/{job.rows} rows", f"{job.failed} failed", *details(moment))
    )


def details(moment: Moment) -> list[str]:
    """Its rates, and what is known of its end."""
    said = [
        f"{_rate(moment.rows_per_second)} rows/s",
        f"{moment.completion_tokens_per_second:,.0f} tokens/s out, {moment.prompt_tokens_per_second:,.0f} in",
        *filter(None, (_accepted(moment.acceptance), _overlap(moment.overlap))),
    ]
    if moment.stalled:
        said.append("no row has ended for a while")
    elif moment.seconds_left is not None:
        said.append(f"{eta.words(moment.seconds_left)} left")
    return said


def worker_columns(worker: WorkerAtWork) -> tuple[str, ...]:
    """A worker's line, in columns."""
    card, effort = worker.card, worker.effort
    rows = "" if card.stats is None else f"{card.stats.in_flight:,} rows"
    tokens = f"{effort.tokens_per_second:,.0f} tokens/s" if effort.seconds else ""
    state = "" if card.state == "ready" else card.state
    drafts = (_accepted(effort.acceptance), _overlap(effort.overlap))
    return tuple(map(printable, (card.worker_id, card.mode, rows, tokens, *drafts, state)))


def _accepted(share: float | None) -> str:
    return "" if share is None else f"{share:.0%} of drafts accepted"


def _overlap(share: float | None) -> str:
    return "" if share is None else f"overlap {share:.0%}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"
