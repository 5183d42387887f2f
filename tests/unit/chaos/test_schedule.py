"""A schedule is decided by its seed, has what was asked for, and asks for nothing that cannot be done."""

from collections import Counter

from chaos.storm.schedule import SPANS, WAYS, Kind, digest, make_schedule
from hypothesis import given
from hypothesis import strategies as st

counts = st.dictionaries(st.sampled_from(Kind), st.integers(0, 12))
seeds = st.integers(0, 2**32)


@given(seeds, counts, st.integers(1, 8))
def test_has_so_many_of_each_kind_in_order_and_within_bounds(seed: int, asked: dict[Kind, int], workers: int) -> None:
    schedule = make_schedule(seed, asked, workers)
    assert Counter(fault.kind for fault in schedule) == Counter(asked)
    assert [fault.at for fault in schedule] == sorted(fault.at for fault in schedule)
    for fault in schedule:
        least, most = SPANS.get(fault.kind, (0.0, 0.0))
        assert least <= fault.seconds <= most
        assert 0 < fault.at < 0.96
        assert 0 <= fault.victim < workers
        assert fault.way in WAYS.get(fault.kind, ("",))


@given(seeds, counts)
def test_the_same_seed_gives_the_same_storm(seed: int, asked: dict[Kind, int]) -> None:
    assert make_schedule(seed, asked, 4) == make_schedule(seed, asked, 4)


def test_another_seed_gives_another_storm_and_its_digest_tells() -> None:
    asked = dict.fromkeys(Kind, 3)
    made = [make_schedule(seed, asked, 4) for seed in (1, 1, 2)]
    assert digest(made[0]) == digest(made[1]) != digest(made[2])


def test_every_way_of_a_kind_comes_up() -> None:
    for kind, ways in WAYS.items():
        assert {fault.way for fault in make_schedule(5, {kind: len(ways)}, 4)} == set(ways)


def test_a_freeze_outlasts_a_lease() -> None:
    from worker.queue.keeper import LEASE_SECONDS

    assert SPANS[Kind.FREEZE_WORKER][0] > LEASE_SECONDS
