"""What a check came to: for people, and as one JSON object."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from producer.cli.common import printable
from worker.verify.check import Finding, Verdict
from worker.verify.comparable import Kind
from worker.verify.given import Chooser
from worker.verify.ties import TieRule

#: Rows of the table; JSON has them all.
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Report:
    """A whole check.

    Attributes:
        source: whose answers were checked, for people: a job or a file.
        missing: why some answers of the job were not looked at; empty: all were.
        model: what it is called.
        rule: what was taken for a float tie.
        counted: all result lines.
        findings: of the rows that were answered again.
    """

    source: str
    missing: str
    model: str
    rule: TieRule
    counted: Chooser
    findings: Sequence[Finding]

    @property
    def apart(self) -> list[Finding]:
        """Rows that are not identical, the worst first."""
        found = [finding for finding in self.findings if finding.verdict is not Verdict.IDENTICAL]
        return sorted(found, key=lambda finding: -finding.verdict)

    @property
    def different(self) -> bool:
        """Whether something is, beyond rounding."""
        return any(finding.verdict is Verdict.DIFFERENT for finding in self.findings)


def to_json(report: Report) -> dict[str, Any]:
    """One object, with every row that is not identical."""
    counted = report.counted
    return {
        "source": report.source,
        "missing": report.missing or None,
        "model": report.model,
        "dtype": report.rule.dtype,
        "tie": report.rule.words,
        "rows": {
            "answered": counted.answered,
            "failed": counted.failed,
            "not_comparable": counted.free,
            "not_submitted": counted.foreign,
            "checked": len(report.findings),
            **{verdict.word.replace(" ", "_"): count for verdict, count in _tally(report).items()},
        },
        "apart": [_finding_json(finding) for finding in report.apart],
        "same": not report.different,
    }


def table(report: Report) -> Table | None:
    """The rows that are not identical; None where all are."""
    if not report.apart:
        return None
    made = Table(box=None, pad_edge=False)
    for column in ("row", "line", "", "what", "token", "the job", "plain decoding", "gap", "tie below"):
        made.add_column(column, overflow="fold")
    for finding in report.apart[:_SHOWN]:
        made.add_row(*(escape(printable(cell)) for cell in _cells(finding)))
    return made


def sentences(report: Report) -> Iterator[str]:
    """What there is to say, the verdict last."""
    counted = report.counted
    if len(report.apart) > _SHOWN:
        yield f"{len(report.apart) - _SHOWN} more rows are not shown (--json has them all)"
    yield from (f"{finding.custom_id}: {finding.note}" for finding in report.apart[:_SHOWN] if finding.note)
    if report.missing:
        yield report.missing
    if counted.free:
        yield f"{counted.free} answered rows were sampled without a seed: they cannot be compared, and were left out"
    if counted.foreign:
        yield f"{counted.foreign} answers are to rows that the submitted file does not have, and were left out"
    if counted.failed:
        yield f"{counted.failed} rows have an error in place of an answer"
    if report.different and all(
        finding.kind is Kind.SEEDED for finding in report.apart if finding.verdict is Verdict.DIFFERENT
    ):
        yield "only rows with a seed differ: of the modes that draft, psd draws as plain decoding does, sd does not"
    if report.apart:
        yield f"a float tie: {report.rule.words}"
    yield _verdict(report)


def _verdict(report: Report) -> str:
    tally = _tally(report)
    checked = f"{len(report.findings)} of {report.counted.comparable} comparable rows of {report.source} answered again"
    counts = ", ".join(f"{count} {verdict.word}" for verdict, count in tally.items() if count)
    end = "NOT THE SAME as plain decoding" if report.different else "the same as plain decoding"
    return f"{checked}: {counts}; {end}"


def _tally(report: Report) -> dict[Verdict, int]:
    counts = Counter(finding.verdict for finding in report.findings)
    return {verdict: counts[verdict] for verdict in Verdict}


def _cells(finding: Finding) -> tuple[str, ...]:
    difference, parting = finding.difference, finding.parting
    what = job = plain = "-"
    if difference is not None:
        choice = f"choice {difference.choice}: " if difference.choice else ""
        what, job, plain = choice + ", ".join(difference.fields), repr(difference.job), repr(difference.plain)
    gap = "-" if parting is None else f"{'> ' if parting.at_least else ''}{parting.gap:.2g}"
    return (
        finding.custom_id,
        str(finding.line),
        finding.verdict.word,
        what,
        "-" if parting is None else str(parting.token),
        job,
        plain,
        gap,
        "-" if finding.limit is None else f"{finding.limit:.2g}",
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "verdict": finding.verdict.word}
