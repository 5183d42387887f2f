"""What a check came to, in words and as JSON."""

import io
import json
from typing import Any

from rich.console import Console

from producer.intake.digest import JobDigest
from worker.verify.check import Finding, Verdict
from worker.verify.comparable import Kind
from worker.verify.given import Chooser, Submitted
from worker.verify.outcomes import Difference
from worker.verify.parting import Parting
from worker.verify.report import Report, sentences, table, to_json
from worker.verify.ties import TieRule


def finding(name: str, verdict: Verdict = Verdict.IDENTICAL, kind: Kind = Kind.GREEDY, **more: Any) -> Finding:
    if verdict is not Verdict.IDENTICAL:
        more.setdefault("difference", Difference(0, ("text",), "one [red]", "two\x1b[2J"))
    return Finding(name, 1, kind, verdict, **more)


def report(*findings: Finding, missing: str = "", **counts: int) -> Report:
    counted = Chooser(Submitted({}, JobDigest()), 100, 0, answered=len(findings) + counts.get("free", 0), **counts)
    return Report("job j", missing, "m", TieRule("float32"), counted, findings)


def shown(made: Report) -> str:
    stream = io.StringIO()
    found = table(made)
    assert found is not None
    Console(file=stream, width=160).print(found)
    return stream.getvalue()


def test_when_all_is_the_same_there_is_no_table_and_one_line() -> None:
    made = report(finding("a"), finding("b"))
    assert table(made) is None
    assert list(sentences(made)) == [
        "2 of 2 comparable rows of job j answered again: 2 identical; the same as plain decoding"
    ]
    assert to_json(made)["same"] is True


def test_ties_are_the_same_and_differences_are_not() -> None:
    tie = finding("a", Verdict.TIE)
    assert not report(tie).different
    made = report(tie, finding("b", Verdict.DIFFERENT), finding("c"))
    assert made.different
    assert list(sentences(made))[-1].endswith("1 identical, 1 float tie, 1 different; NOT THE SAME as plain decoding")
    assert [one["custom_id"] for one in to_json(made)["apart"]] == ["b", "a"]


def test_what_was_left_out_is_said() -> None:
    said = " ".join(sentences(report(finding("a"), missing="job j is running", free=3, foreign=2, failed=1)))
    for words in (
        "job j is running",
        "3 answered rows were sampled without a seed",
        "2 answers are to rows",
        "1 rows have an error",
    ):
        assert words in said


def test_seeded_rows_alone_are_explained() -> None:
    hint = "psd draws as plain decoding does"
    assert hint in " ".join(sentences(report(finding("a", Verdict.DIFFERENT, Kind.SEEDED), finding("b", Verdict.TIE))))
    assert hint not in " ".join(
        sentences(report(finding("a", Verdict.DIFFERENT, Kind.SEEDED), finding("b", Verdict.DIFFERENT)))
    )


def test_a_row_shows_where_and_how_far_apart_and_does_a_terminal_no_harm() -> None:
    parting = Parting(7, 0.25, True, 3.0)
    page = shown(report(finding("r\x1b1", Verdict.DIFFERENT, parting=parting, limit=1e-4, note="x\n")))
    assert "\x1b" not in page
    for words in ("r?1", "different", "text", " 7 ", "'one [red]'", "> 0.25", "0.0001"):
        assert words in page


def test_a_long_table_is_cut_and_json_is_whole() -> None:
    made = report(*(finding(f"r{n}", Verdict.DIFFERENT) for n in range(60)))
    assert "r49" in shown(made)
    assert "r50" not in shown(made)
    assert "10 more rows are not shown" in next(iter(sentences(made)))
    assert len(json.loads(json.dumps(to_json(made)))["apart"]) == 60
