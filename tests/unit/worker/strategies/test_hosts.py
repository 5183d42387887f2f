"""What of a step nothing hides, as learnt from steps of which some were disturbed."""

import numpy as np
import pytest

from worker.strategies.hosts import Hosts
from worker.strategies.seam import Way


def added(hosts: Hosts, *ms: float, way: Way = Way.TWO, drafting: bool = True) -> Hosts:
    for one in ms:
        hosts.add(way, drafting, one)
    return hosts


def test_it_is_by_way_and_by_whether_there_are_drafts() -> None:
    hosts = Hosts()
    assert hosts.ms(Way.ONE, True) == 0
    for _ in range(200):
        added(hosts, 3.0)
        added(hosts, 8.0, way=Way.ONE)
        added(hosts, 0.5, way=Way.ONE, drafting=False)
    assert hosts.ms(Way.TWO, True) == pytest.approx(3, rel=0.02)
    assert hosts.ms(Way.ONE, True) == pytest.approx(8, rel=0.02)
    assert hosts.ms(Way.ONE, False) == pytest.approx(0.5)
    assert hosts.ms(Way.AHEAD, True) == hosts.ms(Way.TWO, True), "of those with drafts"
    assert hosts.ms(Way.TWO, False) == pytest.approx(0.5)
    assert added(Hosts(), 4.0).ms(Way.ONE, False) == 4, "all that there is"


def test_one_step_that_was_disturbed_is_soon_forgotten() -> None:
    assert added(Hosts(), 200.0, 2.0, 2.0).ms(Way.TWO, True) == 2, "the first"
    assert added(Hosts(), *[2.0] * 50, 500.0).ms(Way.TWO, True) < 2.2
    assert added(Hosts(), *[2.0] * 50, 0.0, *[2.0] * 20).ms(Way.TWO, True) == pytest.approx(2, abs=0.1)


def test_what_changes_for_good_is_learnt() -> None:
    for before, now in ((3.0, 5.0), (3.0, 9.0), (9.0, 1.0), (9.0, 7.0)):
        assert added(Hosts(), *[before] * 50, *[now] * 200).ms(Way.TWO, True) == pytest.approx(now, rel=0.02)


def test_the_mean_of_steps_that_differ_is_about_right() -> None:
    steps = np.random.default_rng(0).lognormal(np.log(4), 0.3, 300)
    assert added(Hosts(), *steps).ms(Way.TWO, True) == pytest.approx(steps.mean(), rel=0.15)


def test_a_way_is_known_by_a_few_steps_that_are_not_old() -> None:
    hosts = added(Hosts(), *[50.0] * 3)
    assert not hosts.known(Way.TWO, True)
    added(hosts, *[50.0] * 10)
    assert hosts.known(Way.TWO, True)
    assert not hosts.known(Way.TWO, False)
    assert not hosts.known(Way.ONE, True)
    added(hosts, *[1.0] * 1024, way=Way.ONE)
    assert hosts.ms(Way.TWO, True) == pytest.approx((50 + 1) / 2), "half forgotten"
    added(hosts, *[1.0] * 9000, way=Way.ONE)
    assert not hosts.known(Way.TWO, True)
    assert hosts.ms(Way.TWO, True) == pytest.approx(1, abs=0.1), "so that it is tried"
    added(hosts, *[50.0] * 2)
    assert hosts.ms(Way.TWO, True) == pytest.approx(50, rel=0.05), "what is old does not count"
