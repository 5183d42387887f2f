"""Which cores each rank computes on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.placement import Placement, parse_devices, place
from worker.engine.protocol import EngineStartError


@pytest.mark.parametrize(
    ("text", "devices"), [("0", (0,)), ("0,2-4", (0, 2, 3, 4)), ("7, 3-3 ,1", (7, 3, 1)), ("10-12", (10, 11, 12))]
)
def test_devices_are_listed_or_ranges(text: str, devices: tuple[int, ...]) -> None:
    assert parse_devices(text) == devices


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a list"),
        ("1,", "not a list"),
        ("-1", "not a list"),
        ("1-", "not a list"),
        ("1|2", "not a list"),
        ("all", "not a list"),
        ("4-2", "'4-2' counts backwards"),
        ("1,0-2", "names a device twice"),
    ],
)
def test_what_is_no_list_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_devices(text)


@pytest.mark.parametrize(
    ("cores", "ranks", "bound"),
    [
        ([0], 1, "0"),
        ([0, 1], 1, "0"),
        ([0, 1, 2, 3], 1, "0,1,2"),
        ([0, 1], 2, "0|1"),
        ([4, 5, 6, 7, 8], 2, "4,5|6,7"),
        ([0], 2, "0|0"),
    ],
)
def test_one_core_is_left_to_the_rest(cores: list[int], ranks: int, bound: str) -> None:
    assert place(cores, ranks, drafter=False).omp_bind == bound


@pytest.mark.parametrize(
    ("cores", "ranks", "placement"),
    [
        ([0], 1, Placement(((0,),), (0,))),
        ([0, 1], 2, Placement(((0,), (1,)), (0,))),
        ([0, 1], 1, Placement(((0,),), (1,))),
        ([0, 1, 2], 1, Placement(((0,),), (1,))),
        ([3, 4, 5, 6, 7], 1, Placement(((3, 4),), (5, 6))),
        ([0, 1, 2], 2, Placement(((0,), (1,)), (2,))),
    ],
)
def test_the_drafter_gets_as_much_as_a_verifier(cores: list[int], ranks: int, placement: Placement) -> None:
    assert place(cores, ranks, drafter=True) == placement


@pytest.mark.parametrize(
    ("given", "placement"),
    [
        ({"ranks": 1, "verifier_cpus": (2, 0)}, Placement(((2, 0),), (1, 3))),
        ({"ranks": 2, "verifier_cpus": (0, 1)}, Placement(((0,), (1,)), (2, 3))),
        ({"ranks": 1, "drafter_cpus": (0,)}, Placement(((1, 2, 3),), (0,))),
        ({"ranks": 2, "drafter_cpus": (0,)}, Placement(((1,), (2,)), (0,))),
        ({"ranks": 1, "verifier_cpus": (0,), "drafter_cpus": (3,)}, Placement(((0,),), (3,))),
        ({"ranks": 1, "verifier_cpus": (1,), "drafter": False}, Placement(((1,),))),
    ],
)
def test_what_the_user_gives_counts(given: dict[str, Any], placement: Placement) -> None:
    assert place([0, 1, 2, 3], **{"drafter": True, **given}) == placement


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranks": 1, "verifier_cpus": (3, 4)}, "may not use core 4, only 0, 1, 2, 3"),
        ({"ranks": 1, "drafter_cpus": (9,)}, "may not use core 9"),
        ({"ranks": 1, "drafter_cpus": (3,), "drafter": False}, "--drafter-cpus is for --mode psd"),
        ({"ranks": 2, "verifier_cpus": (0, 1, 2)}, "3 cores cannot be divided evenly among 2 verifiers"),
        ({"ranks": 2, "verifier_cpus": (0,)}, "1 cores cannot be divided"),
        ({"ranks": 2, "drafter_cpus": (0, 1, 2)}, "1 cores cannot be divided"),
        ({"ranks": 1, "verifier_cpus": (0, 1, 2, 3)}, "no core is left for the drafter"),
    ],
)
def test_what_does_not_go_round_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        place([0, 1, 2, 3], **{"drafter": True, **given})


@given(cores=st.sets(st.integers(0, 500), min_size=1, max_size=64), ranks=st.integers(1, 8), drafter=st.booleans())
def test_shares_are_fair_and_disjoint_where_there_are_enough(cores: set[int], ranks: int, drafter: bool) -> None:
    placement = place(sorted(cores), ranks, drafter=drafter)
    shares = [*placement.verifiers, *([placement.drafter] if drafter else [])]
    used = [core for share in shares for core in share]
    assert all(shares)
    assert set(used) <= cores
    assert len(set(map(len, shares))) == 1
    if len(cores) >= len(shares):
        assert len(used) == len(set(used))
    else:
        assert set(used) == cores
