"""Plans: what is compared, the best k, what devices can do, and when two batches pay."""

import pytest

from worker.lab.plan import Fleet, Plan, fleet_of, plan, predict_bench
from worker.lab.predict import Prediction, Workload
from worker.lab.profile import PassCost, Profile
from worker.lab.profiles import profile
from worker.lab.result import Bench, Result, Scenario
from worker.lab.timings import ProfileTimings

ROWS = Workload(prompt_tokens=100, output_tokens=256)
#: Bound by arithmetic: twice the tokens take twice as long.
BOUND = PassCost(0.5, token_ms=0.2)


def pair(draft: PassCost, *, target: PassCost = BOUND, devices: int = 4, acceptance: float = 0.8) -> Profile:
    return Profile("p", devices, target, draft, acceptance=(acceptance,))


def planned(imagined: Profile, in_flight: int = 64) -> Plan:
    return plan(fleet_of(imagined), in_flight=in_flight, workload=ROWS)


def find(made: Plan, name: str) -> Prediction:
    return next(one for one in made.best if one.scenario.name == name)


def test_every_way_to_use_the_devices_is_there() -> None:
    made = planned(profile("llama3.3-70b-awq+8b@h100"))
    assert {one.scenario.name: (one.scenario.in_flight, one.scenario.devices) for one in made.best} == {
        "ar": (64, 4),
        "sd(m)": (32, 4),
        "sd(2m)": (64, 4),
        "psd(2m)": (64, 5),
        "ar(all)": (64, 5),
        "sd(all)": (64, 5),
        "ar(one)": (64, 1),
        "sd(one)": (64, 1),
    }
    assert len(made.every) == 3 + 5 * 5


def test_places_where_the_target_cannot_be_are_left_out() -> None:
    names = {one.scenario.name for one in planned(profile("flat:25,15")).best}
    assert names == {"ar", "sd(m)", "sd(2m)", "psd(2m)"}


def test_the_best_number_of_drafts_gives_the_most() -> None:
    made = planned(profile("qwen3-32b+1.7b"), in_flight=32)
    for best in made.best:
        assert best.tokens_per_s == max(
            one.tokens_per_s for one in made.every if one.scenario.name == best.scenario.name
        )
    # What hides costs nothing: two batches can draft more than one.
    assert find(made, "psd(2m)").scenario.drafts > find(made, "sd(m)").scenario.drafts


def test_two_batches_gain_what_the_method_says_over_one_of_their_size() -> None:
    made = plan(fleet_of(profile("flat:25,15", 3)), in_flight=64, workload=ROWS, drafts=[3])
    assert find(made, "psd(2m)").tokens_per_s / find(made, "sd(m)").tokens_per_s == pytest.approx(40 / 25)


def test_devices_hold_copies_of_whatever_is_fastest_on_them() -> None:
    made = planned(profile("llama3.3-70b-awq+8b@h100"))
    twenty = made.on(20)
    assert {way.prediction.scenario.name: way.copies for way in twenty}["psd(2m)"] == 4
    assert {way.prediction.scenario.name: way.copies for way in twenty}["sd(2m)"] == 5
    assert [way.tokens_per_s for way in twenty] == sorted((way.tokens_per_s for way in twenty), reverse=True)
    assert [way.prediction.scenario.devices for way in made.on(3)] == [1, 1]
    assert {way.prediction.scenario.name: way.idle_devices for way in made.on(5)}["sd(2m)"] == 1


def test_two_batches_pay_where_arithmetic_binds_and_drafts_are_cheap() -> None:
    made = planned(pair(PassCost(8.0), target=PassCost(30, floor_ms=10, token_ms=0.05), devices=16, acceptance=0.9))
    (verdict, *rest) = made.advice
    assert verdict.startswith("Two batches pay: psd(2m) k=")
    assert "x sd(m) k=" in verdict
    assert not rest or "slower side" in rest[0]


def test_a_flat_v_never_pays_and_no_drafter_changes_that() -> None:
    verdict, needed = planned(profile("flat:25,15")).advice
    assert verdict.startswith("Two batches do not pay: psd(2m) k=")
    for rival in ("x sd(m) k=", "x sd(2m) k=", "x ar,", "per device 0."):
        assert rival in verdict
    assert needed.startswith("No drafter of this acceptance, however cheap")


def test_a_drafter_that_is_too_slow_is_told_what_it_would_have_to_take() -> None:
    verdict, needed = planned(pair(PassCost(60.0), target=PassCost(10, token_ms=0.1), acceptance=0.9)).advice
    assert verdict.startswith("Two batches do not pay")
    assert needed.startswith("The drafter is not cheap enough: two batches would be the fastest at t = ")
    share = float(needed.rsplit(", ", 1)[1].split("%")[0]) / 100
    for factor, pays in ((share, True), (share + 0.02, False)):
        cheaper = planned(pair(PassCost(60.0 * factor), target=PassCost(10, token_ms=0.1), acceptance=0.9))
        assert cheaper.advice[0].startswith("Two batches do not pay") is not pays


def test_fastest_is_not_yet_the_most_per_device() -> None:
    # One device more than one, for less than twice the tokens. A pass has room for 128 tokens: those of half the rows.
    made = planned(pair(PassCost(5.0), target=PassCost(0, floor_ms=30, token_ms=30 / 128), devices=1, acceptance=0.9))
    verdict, needed = made.advice
    assert verdict.startswith("Two batches are fastest but do not pay per device")
    assert "the best per device" in needed


def test_a_target_on_one_device_is_no_replica_of_itself() -> None:
    imagined = Profile("p", 1, BOUND, PassCost(1.0), target_on_one=BOUND)
    assert {one.scenario.name for one in planned(imagined).best} == {"ar", "sd(m)", "sd(2m)", "psd(2m)"}


def test_what_the_host_takes_is_in_the_step() -> None:
    fleet = fleet_of(profile("flat:25,15", 3), {"sd": 5.0})
    made = plan(fleet, in_flight=8, workload=ROWS, drafts=[3])
    assert (find(made, "sd(2m)").step_ms, find(made, "psd(2m)").step_ms) == (45, 25)


def test_a_bench_is_predicted_scenario_by_scenario() -> None:
    on_n, on_all = (ProfileTimings(profile(f"flat:{v},15", 3)) for v in (25, 20))
    scenarios = [
        Scenario("ar", "ar", 8, 0, 4),
        Scenario("psd(2m)", "psd", 8, 3, 5),
        Scenario("sd(all)", "sd", 8, 3, 5),
        Scenario("far", "sd", 8, 3, 9),
        Scenario("run-batch", "run-batch", 8, 0, 4),
    ]
    bench = Bench("p", True, 1, 1, True, "", tuple(Result(one, ()) for one in scenarios), "here")
    predicted = predict_bench(bench, Fleet(4, on_n, on_all), ROWS)
    assert [(one.scenario.name, one.verify_ms) for one in predicted] == [("ar", 25), ("psd(2m)", 25), ("sd(all)", 20)]
