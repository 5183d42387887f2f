"""Timings from a bench: lines between measured points, and nothing from `psd` itself."""

from dataclasses import replace

import pytest

from worker.lab.measured import Curve, Measured, MeasuredError, measured_fleet
from worker.lab.plan import predict_bench
from worker.lab.plan_report import compare
from worker.lab.predict import Workload
from worker.lab.result import Bench, Mode, Result, Scenario, Turn
from worker.strategies.seam import Strategy


def turn(v: float, t: float | None, step: float, acceptance: tuple[float, ...] = (), rate: float = 1.0) -> Turn:
    return Turn(
        seconds=1,
        tokens=1,
        tokens_per_s=1,
        steady_tokens_per_s=rate,
        verify_ms=v,
        draft_ms=t,
        step_ms=step,
        acceptance_at=acceptance,
    )


def result(name: str, mode: Mode, in_flight: int, drafts: int, devices: int, *turns: Turn) -> Result:
    return Result(Scenario(name, mode, in_flight, drafts, devices), turns)


def bench(*results: Result) -> Bench:
    return Bench("pair", False, 64, 64, True, "", results, "two cores")


ACCEPTED = (0.8, 0.5)
#: V = 20 ms + 1 ms a token; t = 10 ms a draft of four requests, 12 ms of eight.
SOUND = bench(
    result("ar", "ar", 8, 0, 1, turn(28, None, 30)),
    result("sd(m)", "sd", 4, 2, 1, turn(32, 20, 53, ACCEPTED), turn(32, 20, 53, ACCEPTED), turn(99, 99, 999, ACCEPTED)),
    result("sd(2m)", "sd", 8, 2, 1, turn(44, 24, 71, ACCEPTED)),
    result("psd(2m)", "psd", 8, 2, 2, turn(32, 20, 500, (0.1, 0.1), rate=4 * 2.2 / 0.033)),
)


def test_between_points_is_a_line_and_beyond_them_it_goes_on() -> None:
    curve = Curve.through([(20, 40), (10, 30), (10, 20)])
    assert [curve(x) for x in (10, 15, 20, 30, 5)] == [25, 32.5, 40, 55, 17.5]


def test_beyond_points_it_never_goes_down_or_below_nothing() -> None:
    assert Curve.through([(10, 20), (20, 15)])(40) == 15
    assert Curve.through([(10, 5), (11, 10)])(1) == 0
    assert Curve.through([(10, 5)])(1) == Curve.through([(10, 5)])(99) == 5


def test_v_is_by_the_tokens_in_a_pass() -> None:
    measured = Measured.of(SOUND, 1)
    assert measured.verify_ms(4, 2) == 32
    assert measured.verify_ms(8, 0) == 28
    assert measured.verify_ms(5, 1, prefill=6) == pytest.approx(36)
    assert measured.verify_ms(4, 2, context=999) == 32


def test_t_is_by_drafts_and_requests_and_a_prompt_costs_its_share() -> None:
    measured = Measured.of(SOUND, 1)
    assert measured.draft_ms(4, 2) == 20
    assert measured.draft_ms(6, 3) == pytest.approx(33)
    assert measured.draft_ms(4, 0) == 0
    assert measured.draft_ms(8, 2, prefill=14) == pytest.approx(24 + 14 * 12 / 28)


def test_acceptance_is_as_measured_and_goes_on_as_it_ends() -> None:
    measured = Measured.of(SOUND, 1)
    assert [measured.accepted_at(position) for position in (0, 1, 2)] == pytest.approx([0.8, 0.5, 0.5])


def test_a_turn_in_which_a_position_was_never_reached_says_nothing_about_it() -> None:
    turns = turn(10, 5, 16, (0.0,)), turn(10, 5, 16, (0.4, 0.5))
    measured = Measured.of(bench(result("sd", "sd", 4, 3, 1, *turns)), 1)
    assert [measured.accepted_at(position) for position in (0, 1, 2)] == [0.2, 0.5, 0.5]


def test_the_rest_of_a_step_is_the_hosts() -> None:
    measured = Measured.of(SOUND, 1)
    assert (measured.host_ms("ar", 8), measured.host_ms("sd", 4), measured.host_ms("sd", 8)) == (2, 1, 3)
    assert measured.host_ms("psd", 4) == 1.0
    assert Measured.of(SOUND, 1, psd_gap_ms=2.5).host_ms("psd", 4) == 2.5
    only_sd = bench(result("sd(m)", "sd", 4, 2, 1, turn(32, 20, 53, ACCEPTED)))
    assert Measured.of(only_sd, 1).host_ms("ar", 4) == 1


def test_without_drafts_measured_nothing_can_be_said_about_them() -> None:
    with pytest.raises(MeasuredError, match="no sd on 1 devices"):
        Measured.of(bench(result("ar", "ar", 8, 0, 1, turn(28, None, 30))), 1)


def test_a_bench_without_a_steady_part_is_refused() -> None:
    with pytest.raises(MeasuredError, match="no steady part of ar or sd on 7 devices"):
        Measured.of(SOUND, 7)


def test_two_batches_are_predicted_from_one() -> None:
    fleet = measured_fleet(SOUND, 1)
    assert fleet.on_all is None
    comparison = compare(SOUND, predict_bench(SOUND, fleet, Workload()))
    by_name = {ratio.scenario.name: ratio for ratio in comparison.ratios}
    assert set(by_name) == {"ar", "sd(m)", "sd(2m)", "psd(2m)"}
    assert by_name["psd(2m)"].predicted == pytest.approx(4 * 2.2 / 0.033)
    assert by_name["psd(2m)"].deviation == pytest.approx(0)


def test_lanes_that_slow_each_other_down_do_so_in_the_prediction() -> None:
    """V is 10 % longer beside the drafter, t twice as long; a step of `psd`, and its acceptance, are not read."""
    slowed = bench(*SOUND.results[:3], result("psd(2m)", "psd", 8, 2, 2, turn(35.2, 40, 500, (0.1, 0.1))))
    fleet = measured_fleet(slowed, 1)
    assert fleet.two is not None
    assert fleet.two.verify_ms(8, 0) == pytest.approx(1.1 * 28)
    assert fleet.two.draft_ms(4, 3) == pytest.approx(60)
    assert fleet.on_n.verify_ms(4, 2) == 32
    faster = replace(slowed.results[3], scenario=replace(slowed.results[3].scenario, strategy=Strategy(mode="pearl")))
    assert measured_fleet(replace(slowed, results=(*SOUND.results[:3], faster)), 1).two is None, "no two batches"
    (psd,) = (one for one in predict_bench(slowed, fleet, Workload()) if one.scenario.mode == "psd")
    assert psd.step_ms == pytest.approx(41)
    assert psd.tokens_a_cycle == pytest.approx(2.2)
    assert measured_fleet(bench(*SOUND.results[:3]), 1).two is None


def test_all_devices_are_those_of_two_batches() -> None:
    more = bench(*SOUND.results, result("sd(all)", "sd", 8, 2, 2, turn(22, 24, 48, ACCEPTED)))
    fleet = measured_fleet(more, 1)
    assert fleet.on_all is not None
    assert fleet.on_all.verify_ms(8, 2) == 22
    assert fleet.on_all.verify_ms(8, 0) == 14, "half of what it is on one device, there as here"
