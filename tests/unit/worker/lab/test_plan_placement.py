"""What a plan leaves for a worker is what it found to be the fastest."""

import pytest

from worker.lab.plan import Plan, fleet_of, plan
from worker.lab.plan_placement import placement
from worker.lab.predict import Workload
from worker.lab.profile import PassCost, Profile
from worker.plan_file import PlannedPlacement

BOUND = PassCost(30, floor_ms=10, token_ms=0.05)


def planned(imagined: Profile) -> Plan:
    return plan(fleet_of(imagined), in_flight=64, workload=Workload(100, 256))


def test_two_batches_become_auto_with_room_for_all_drafts_that_were_tried() -> None:
    found = planned(Profile("p", 4, BOUND, PassCost(8.0), acceptance=(0.9,)))
    made = placement(found)
    assert (made.mode, made.tensor_parallel_size, made.num_speculative_tokens) == ("auto", 4, 5)
    assert made.why.startswith("psd(2m) k=")
    assert "sd(2m) k=" in made.why


def test_a_drafter_that_is_right_but_dear_has_no_device_of_its_own() -> None:
    made = placement(planned(Profile("p", 4, PassCost(25.0), PassCost(5.0), acceptance=(0.8,))))
    assert (made.mode, made.tensor_parallel_size) == ("sd", 4)
    assert made.num_speculative_tokens > 0


def test_a_drafter_that_is_never_right_is_left_out() -> None:
    made = placement(planned(Profile("p", 4, PassCost(25.0), PassCost(5.0), acceptance=(0.0,))))
    assert made == PlannedPlacement("ar", 4, 0, made.why)


def test_copies_on_many_devices_are_one_placement_each() -> None:
    found = planned(Profile("p", 2, BOUND, PassCost(8.0), target_on_one=BOUND, acceptance=(0.0,)))
    made = placement(found, devices=6)
    assert (made.mode, made.tensor_parallel_size) == ("ar", 1)
    assert made.why.startswith("6 x ar(one) with 64 in flight")
    assert placement(found).tensor_parallel_size == 2, "a copy alone is no faster, and one more device is worth nothing"


def test_too_few_devices_are_told() -> None:
    with pytest.raises(ValueError, match="fits on 1 devices"):
        placement(planned(Profile("p", 4, BOUND, PassCost(8.0))), devices=1)
