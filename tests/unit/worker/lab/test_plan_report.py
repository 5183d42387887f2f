"""Plans and comparisons as tables and lines; what is imagined says so."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from worker.lab.plan import Plan, fleet_of, plan
from worker.lab.plan_report import (
    Comparison,
    compare,
    comparison_table,
    devices_table,
    plan_table,
)
from worker.lab.predict import Workload
from worker.lab.profiles import profile
from worker.lab.result import Bench, Result, Turn


@pytest.fixture(name="made", scope="module")
def fixture_made() -> Plan:
    return plan(fleet_of(profile("flat:25,15", 3)), in_flight=64, workload=Workload(), drafts=[1, 3])


def shown(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(table)
    return out.getvalue()


def measured(made: Plan, factors: list[float], *, virtual: bool = True, quiet: bool = True) -> Bench:
    results = tuple(
        Result(one.scenario, (Turn(1, 1, 1, steady_tokens_per_s=one.steady_tokens_per_s / factor),))
        for one, factor in zip(made.best, factors, strict=False)
    )
    return Bench("flat:25,15", virtual, 64, 64, quiet, "" if quiet else "a compiler", results, "here")


def test_a_table_has_a_row_for_each_scenario(made: Plan) -> None:
    text = shown(plan_table(made, "flat:25,15", virtual=True))
    assert text.startswith("virtual: flat:25,15")
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["ar", "sd(m)", "sd(2m)", "psd(2m)"]
    assert "25.0" in text


def test_a_table_of_every_k_has_them_all(made: Plan) -> None:
    assert len(shown(plan_table(made, "p", virtual=True, every=True)).splitlines()) == 2 + 1 + 3 * 2


def test_real_devices_are_not_called_virtual(made: Plan) -> None:
    assert "virtual" not in shown(plan_table(made, "two cores", virtual=False))


def test_what_devices_can_do(made: Plan) -> None:
    text = shown(devices_table(made.on(20), 20, virtual=True))
    assert text.startswith("virtual: 20 devices")
    assert "5 x sd(2m)" in text
    assert "4 x psd(2m)" in text


def test_a_comparison_finds_the_worst_either_way(made: Plan) -> None:
    comparison = compare(measured(made, [1.0, 1.05, 0.8, 1.1]), made.best)
    assert [ratio.deviation for ratio in comparison.ratios] == pytest.approx([0, 0.05, -0.2, 0.1])
    assert comparison.worst == pytest.approx(-0.2)
    text = shown(comparison_table(comparison))
    assert text.startswith("virtual: plan against bench, flat:25,15")
    assert "-20.0%" in text.splitlines()[-1]
    assert "no result" not in text


def test_an_unquiet_machine_gives_no_result(made: Plan) -> None:
    assert "no result" in shown(comparison_table(compare(measured(made, [1, 1, 1, 1], quiet=False), made.best)))


def test_what_was_not_measured_or_not_predicted_is_not_compared(made: Plan) -> None:
    bench = measured(made, [1.0, 1.0])
    assert len(compare(bench, made.best).ratios) == 2
    assert compare(bench, []) == Comparison("flat:25,15", True, True, ())
    assert compare(bench, []).worst is None
    assert "worst" not in shown(comparison_table(compare(bench, [])))
