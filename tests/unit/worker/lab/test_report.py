import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from worker.lab.report import footing, from_json, heading, most_gain, ratio, table, to_json
from worker.lab.result import Bench, Result, Scenario, Spread, Turn
from worker.strategies.seam import Strategy


def made(scenario: Scenario, *rates: float, **measures: object) -> Result:
    """A result of turns at so many tokens/s, whole run; the steady part is a tenth faster."""
    turns = (Turn(10.0, int(10 * rate), rate, 1.1 * rate, **measures) for rate in rates)  # type: ignore[arg-type]
    return Result(scenario, tuple(turns))


BENCH = Bench(
    pair="synthetic:105/27",
    virtual=False,
    rows=80,
    max_tokens=64,
    quiet=True,
    disturbance="",
    results=(
        made(Scenario("sd(m)", "sd", 4, 2, 1), 100, 110, 90, verify_ms=100.0, draft_ms=90.0, step_ms=191.0),
        made(
            Scenario("psd(2m)", "psd", 8, 2, 2),
            *(190, 220, 175),
            verify_ms=101.0,
            draft_ms=90.0,
            step_ms=102.5,
            hidden_share=0.987,
            step_over_longer=1.0149,
            acceptance=0.75,
            acceptance_at=(0.8, 0.7),
            imbalance=0.0,
            work_imbalance=0.041,
            skewed_share=0.125,
            lane_idle_whole=0.081,
            tail_s=7.25,
        ),
        Result(Scenario("run-batch", "run-batch", 8, 0, 2), (Turn(10.0, 900, 90.0),)),
    ),
    machine="two cores",
)


def text(bench: Bench, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as printed:
        console.print(table(bench))
    return printed.get()


def cells(bench: Bench, label: str) -> list[list[str]]:
    """Of each row that begins with the label, the other cells."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text(bench).splitlines() if "│" in line]
    return [row[1:] for row in rows if row[0] == label]


def test_measures_are_rows_and_scenarios_columns() -> None:
    assert cells(BENCH, "tokens/s, whole run") == [["100.0", "190.0", "90.0"]]
    assert cells(BENCH, "V, ms") == [["100.0", "101.0", ""]]
    assert cells(BENCH, "hidden share") == [["", "98.7%", ""]]
    assert cells(BENCH, "step / max(t, V)") == [["", "1.015", ""]]
    assert cells(BENCH, "draft 2, reached") == [["", "70.0%", ""]]
    assert cells(BENCH, "imbalance") == [["", "0.000", ""]]
    assert cells(BENCH, "imbalance of work") == [["", "0.041", ""]]
    assert cells(BENCH, "skewed pairs") == [["", "12.5%", ""]]
    assert cells(BENCH, "longer lane's idle") == [["", "8.1%", ""]]
    assert cells(BENCH, "tail, s") == [["", "7.2", ""]]
    assert cells(BENCH, "verified together") == [["4", "4", "8"]]
    assert not cells(BENCH, "drafter idle, steady")  # nobody has it
    assert not cells(BENCH, "records lost")


def test_throughput_has_its_spread_and_is_compared_turn_by_turn() -> None:
    assert ["90.0-110.0", "175.0-220.0", ""] in cells(BENCH, "")
    assert cells(BENCH, "x sd(m)") == [["1.00", "1.94", ""], ["1.00", "1.94", "0.90"]]
    assert ratio(BENCH.results[1], BENCH.results[0], "tokens_per_s") == Spread(175 / 90, 1.9, 2.0)
    assert ratio(BENCH.results[2], BENCH.results[0], "steady_tokens_per_s") is None


def test_the_limit_of_two_batches_is_that_of_the_base_and_stands_below_what_it_limits() -> None:
    assert most_gain(BENCH.results[0]) == Spread(1.9, 1.9, 1.9)  # 100 and 90 ms
    slow_drafts = replace(BENCH.results[0].turns[0], verify_ms=50.0)
    assert most_gain(replace(BENCH.results[0], turns=(slow_drafts,))) == Spread(140 / 90, 140 / 90, 140 / 90)
    assert cells(BENCH, "limit of that") == [["", "1.90", ""]]
    lines = [line.strip("│ ").split("│")[0].strip() for line in text(BENCH).splitlines()]
    assert lines.index("limit of that") > lines.index("tokens/s, whole run") > lines.index("x sd(m)")
    assert footing(BENCH) not in text(BENCH).splitlines()[-1]
    assert text(BENCH).splitlines()[-1].strip() == "limit: (V + t) / max(V, t), steady V and t of sd(m)"


@pytest.mark.parametrize(
    "results",
    [
        BENCH.results[1:],  # no base
        (BENCH.results[0], BENCH.results[2]),  # no two batches
        (Result(BENCH.results[0].scenario, (Turn(10.0, 900, 90.0, verify_ms=100.0),)), *BENCH.results[1:]),  # no t
    ],
)
def test_without_the_base_its_times_or_two_batches_there_is_no_limit(results: tuple[Result, ...]) -> None:
    assert "limit" not in text(replace(BENCH, results=results))


def test_without_the_base_nothing_is_compared() -> None:
    assert "x sd(m)" not in text(replace(BENCH, results=BENCH.results[1:]))


def test_mixed_lengths_are_said() -> None:
    mixed = replace(BENCH, rows=5000, max_tokens=258, least_tokens=4, most_tokens=512)
    assert heading(mixed) == "synthetic:105/27: 5,000 rows of 258 tokens in the mean (4 to 512 asked for)"
    assert heading(replace(mixed, least_tokens=512)) == "synthetic:105/27: 5,000 rows of 258 tokens"
    assert from_json(to_json(mixed)) == mixed


def test_records_that_were_lost_are_said() -> None:
    lost = replace(BENCH.results[1], turns=(replace(BENCH.results[1].turns[0], lost_records=1234),))
    assert cells(replace(BENCH, results=(lost,)), "records lost") == [["1,234"]]


def test_six_scenarios_fit_into_120_characters() -> None:
    names = ("ar", "sd(m)", "sd(2m)", "sd(all)", "psd(2m)", "run-batch")
    results = tuple(made(Scenario(name, "sd", 128, 4, 5), 12345.6, 12111.1, 12999.9) for name in names)
    found = text(replace(BENCH, results=results))
    assert found.count("12,346") == 6
    assert found.count("12,111-13,000") == 6
    assert "…" not in found


def test_imagined_devices_and_a_machine_that_was_not_quiet_are_marked() -> None:
    assert heading(BENCH) == "synthetic:105/27: 80 rows of 64 tokens"
    assert footing(BENCH) == "two cores; medians of 3 turns"
    virtual = replace(BENCH, virtual=True)
    assert heading(virtual) == "VIRTUAL devices: synthetic:105/27: 80 rows of 64 tokens"
    assert "devices imagined" in footing(virtual)
    noisy = replace(virtual, quiet=False, disturbance="another program uses 0.40 cores ([cc] 7)")
    words = " ".join(text(noisy).split())
    assert words.startswith(
        "NO RESULT, the machine was not quiet: another program uses 0.40 cores ([cc] 7) VIRTUAL devices:"
    )
    assert "two cores, devices imagined; medians of 3 turns" in words


def test_a_strategy_says_what_it_verified_and_how_rows_took_turns() -> None:
    measures = {"verified_drafts": 1.234, "in_two": 0.9, "ahead": 0.1}
    asked = Scenario("psd+tetris(2m)", "psd", 8, 4, 2, Strategy(admission="tetris", extra=2))
    chosen = Scenario("auto(2m)", "psd", 8, 5, 2, Strategy(mode="auto"))
    found = replace(BENCH, results=(*BENCH.results, made(asked, 200, **measures), made(chosen, 210, in_one=1.0)))
    assert cells(found, "drafts verified, a row and call") == [["", "", "", "1.23", ""]]
    assert cells(found, "calls in two batches") == [["", "", "", "90.0%", ""]]
    assert cells(found, "calls in one batch") == [["", "", "", "", "100.0%"]]
    assert cells(found, "calls ahead") == [["", "", "", "10.0%", ""]]
    assert cells(found, "verified together") == [["4", "4", "8", "4", "8"]]
    assert cells(found, "limit of that") == [["", "1.90", "", "", ""]]  # of as many drafts, all of them verified
    assert from_json(to_json(found)) == found


def test_json_of_a_time_without_strategies_is_read() -> None:
    before = json.loads(to_json(BENCH))
    for result in before["results"]:
        del result["scenario"]["strategy"]
    assert from_json(json.dumps(before)) == BENCH


def test_json_brings_everything_back() -> None:
    assert from_json(to_json(BENCH)) == BENCH
    assert '"virtual": true' in to_json(replace(BENCH, virtual=True))


@pytest.mark.parametrize("content", ["[]", "{}", '{"results": [1]}', "nonsense", '{"results": [{"scenario": {}}]}'])
def test_other_json_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"no result of `worker bench`|Expecting value"):
        from_json(content)


def test_a_bench_without_results() -> None:
    empty = replace(BENCH, results=())
    assert footing(empty) == "two cores; one turn"
    assert text(empty)
