"""What passes cost, as learnt from passes that were made."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.strategies.costs import Costs
from worker.strategies.seam import Way

#: Of requests and tokens, ms.
Pass = Callable[[float, float], float]

ROWS = (2, 4, 8, 16, 32, 64)
DRAFTS = (0, 1, 3)


def flat(requests: float, tokens: float) -> float:
    return 20.0


def roofline(requests: float, tokens: float) -> float:
    return 3.0 + max(20.0, 0.25 * tokens)


def straight(requests: float, tokens: float) -> float:
    return 2.0 + 0.4 * tokens


def with_context(requests: float, tokens: float) -> float:
    return roofline(requests, tokens) + 0.3 * requests


PASSES = pytest.mark.parametrize("of", [flat, roofline, straight, with_context])


def learnt(
    of: Pass, *, noise: float = 0.0, times: int = 20, rows: Iterable[int] = ROWS, drafts: Iterable[int] = DRAFTS
) -> Costs:
    """Costs of a target, and of a draft model that is ten times as fast, by batches of so many rows and drafts."""
    random = np.random.default_rng(0)
    costs = Costs()
    sizes = [(n, k) for n in rows for k in drafts]
    for _ in range(times):
        for n, k in sizes:
            costs.verified(n, n * (1 + k), of(n, n * (1 + k)) * random.lognormal(0, noise))
            taken = of(n, n * (1 + k)) + max(0, k - 1) * of(n, n)
            costs.drafted(n, n * (1 + k), k, taken / 10 * random.lognormal(0, noise))
    return costs


def v(costs: Costs, requests: float, tokens: float) -> float:
    found = costs.verify_ms(requests, tokens)
    assert found is not None
    return found


def t(costs: Costs, requests: float, tokens: float, drafts: int) -> float:
    found = costs.draft_ms(requests, tokens, drafts)
    assert found is not None
    return found


@PASSES
@pytest.mark.parametrize(("noise", "off"), [(0.0, 0.01), (0.1, 0.04)])
def test_sizes_that_were_seen_take_what_they_took(of: Pass, noise: float, off: float) -> None:
    costs = learnt(of, noise=noise)
    for n in ROWS:
        for k in DRAFTS:
            tokens = n * (1 + k)
            assert v(costs, n, tokens) == pytest.approx(of(n, tokens), rel=off), (n, k)
            taken = (of(n, tokens) + max(0, k - 1) * of(n, n)) / 10
            assert t(costs, n, tokens, k) == pytest.approx(taken, rel=2 * off), (n, k)


@PASSES
def test_sizes_between_them_are_near(of: Pass) -> None:
    costs = learnt(of, noise=0.05)
    for n, k in [(6, 1), (12, 2), (24, 1), (24, 3), (48, 3), (40, 0)]:
        assert v(costs, n, n * (1 + k)) == pytest.approx(of(n, n * (1 + k)), rel=0.12), (n, k)


@pytest.mark.parametrize(("of", "off"), [(flat, 0.02), (roofline, 0.06), (straight, 0.02), (with_context, 0.08)])
def test_beyond_them_it_goes_on_straight(of: Pass, off: float) -> None:
    costs = learnt(of, noise=0.02)
    for n, k in [(64, 5), (128, 3), (256, 3)]:
        assert v(costs, n, n * (1 + k)) == pytest.approx(of(n, n * (1 + k)), rel=off), (n, k)


def test_requests_and_tokens_are_told_apart() -> None:
    """As many tokens of half as many rows read half as much context."""
    costs = learnt(with_context)
    assert v(costs, 32, 64) - v(costs, 16, 64) == pytest.approx(0.3 * 16, rel=0.05)
    assert v(learnt(roofline), 32, 64) == pytest.approx(v(learnt(roofline), 16, 64), rel=0.01)


def test_other_numbers_of_drafts_are_told_from_those_that_were_seen() -> None:
    costs = learnt(roofline, drafts=(1, 3))
    for n in (4, 16, 64):
        for k in (2, 4, 5):
            assert t(costs, n, n * 4, k) == pytest.approx(
                (roofline(n, 4 * n) + (k - 1) * roofline(n, n)) / 10, rel=0.06
            )


def test_with_one_number_of_drafts_all_passes_are_taken_to_take_as_long() -> None:
    costs = learnt(flat, drafts=(3,))
    for k in (0, 1, 2, 3, 5):
        assert t(costs, 8, 32, k) == pytest.approx(2.0 * max(1, k), rel=0.02)


def test_no_drafts_cost_the_first_pass() -> None:
    costs = learnt(roofline)
    assert t(costs, 8, 32, 0) == t(costs, 8, 32, 1)


def test_before_anything_is_known() -> None:
    costs = Costs()
    assert costs.verify_ms(1, 1) is None
    assert costs.draft_ms(1, 1, 1) is None
    assert costs.verify_curve(1, np.array([1.0])) is None
    assert costs.verify_slope(1) == 0
    assert not costs.known(1)
    assert costs.host_ms(Way.ONE, True) == 0


def test_one_size_alone_is_known_there_and_beyond() -> None:
    costs = Costs()
    costs.verified(8, 32, 20)
    assert v(costs, 8, 32) == v(costs, 8, 320) == v(costs, 8, 8) == pytest.approx(20, rel=1e-3)
    assert costs.verify_slope(32) == pytest.approx(0, abs=1e-6)


def test_many_sizes_at_once() -> None:
    costs = learnt(with_context)
    sizes = np.array([1.0, 7.0, 33.0, 100.0, 5000.0])
    found = costs.verify_curve(16, sizes)
    assert found is not None
    assert found.tolist() == pytest.approx([v(costs, 16, size) for size in sizes.tolist()])


def test_the_slope() -> None:
    costs = learnt(roofline)
    assert costs.verify_slope(16) == pytest.approx(0, abs=0.01)
    assert costs.verify_slope(200) == pytest.approx(0.25, rel=0.1)
    assert costs.verify_slope(1000) == pytest.approx(0.25, rel=0.1)


def test_a_size_is_known_when_it_was_seen_more_than_twice() -> None:
    costs = Costs()
    for _ in range(2):
        costs.verified(8, 32, 20)
    assert not costs.known(32)
    costs.verified(8, 34, 20)
    assert costs.known(32)
    assert costs.known(34)
    assert not costs.known(40)
    assert not costs.known(25)


def test_what_was_not_seen_for_long_is_not_known_any_more() -> None:
    costs = Costs()
    for _ in range(20):
        costs.verified(8, 32, 20)
    for _ in range(9000):
        costs.verified(8, 8, 15)
    assert not costs.known(32)
    assert costs.known(8)
    assert v(costs, 8, 32) == pytest.approx(20, rel=0.01), "the best guess all the same"


def test_what_was_seen_long_ago_gives_way_to_what_was_seen_since() -> None:
    """The device has become faster, and of 33 tokens it is known that they take no longer than 10 ms: so do 32."""
    costs = Costs()
    for _ in range(40):
        costs.verified(8, 32, 20)
    for _ in range(40_000):
        costs.verified(8, 33, 10)
    assert v(costs, 8, 32) == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("factor", [0.4, 0.8, 1.5, 5.0])
def test_a_device_that_changes_is_followed(factor: float) -> None:
    costs = learnt(straight)
    before = v(costs, 8, 32)
    for _ in range(100):
        costs.verified(8, 32, factor * straight(8, 32))
    # Neighbours that were not seen since hold it back, where it would have to be slower than larger passes.
    low, high = sorted((before, factor * before))
    assert low <= v(costs, 8, 32) <= high
    for _ in range(100):
        for n in ROWS:
            for k in DRAFTS:
                costs.verified(n, n * (1 + k), factor * straight(n, n * (1 + k)))
    assert v(costs, 8, 32) == pytest.approx(factor * straight(8, 32), rel=0.06)


def test_disturbed_passes_count_little() -> None:
    costs = learnt(roofline)
    costs.verified(8, 32, 1000.0)
    assert v(costs, 8, 32) == pytest.approx(roofline(8, 32), rel=0.06)
    costs = Costs()
    for ms in (*[20.0] * 10, 1000.0):
        costs.verified(8, 32, ms)
    assert v(costs, 8, 32) == pytest.approx(20, rel=0.12), "as one of 40 ms does"
    costs = Costs()
    for ms in (900.0, 20.0, 20.0):
        costs.verified(8, 32, ms)
    assert v(costs, 8, 32) == pytest.approx(20, rel=0.01), "the first one was disturbed"


def test_passes_with_nothing_in_them_are_left_out() -> None:
    costs = Costs()
    costs.verified(0, 0, 20.0)
    costs.verified(8, 8, 0.0)
    costs.drafted(0, 0, 3, 5.0)
    assert costs.verify_ms(1, 1) is None
    assert costs.draft_ms(1, 1, 1) is None


SEEN = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 8), st.floats(0.01, 1000)), min_size=1, max_size=30)


@settings(deadline=None)
@given(SEEN, st.integers(1, 500), st.integers(0, 8))
def test_more_never_costs_less_whatever_was_seen(seen: list[tuple[int, int, float]], rows: int, drafts: int) -> None:
    costs = Costs()
    for n, k, ms in seen:
        costs.verified(n, n * (1 + k), ms)
        costs.drafted(n, n * (1 + k), k, ms)
    tokens = rows * (1 + drafts)
    now, draft = v(costs, rows, tokens), t(costs, rows, tokens, drafts)
    assert np.isfinite([now, draft]).all()
    assert now >= 0
    assert draft >= 0
    slack = 1e-9 * (now + draft)
    assert v(costs, rows, tokens + rows) >= now - slack
    assert v(costs, rows + 1, tokens) >= now - slack
    assert t(costs, rows, tokens, drafts + 1) >= draft - slack
    assert t(costs, rows + 1, tokens + drafts + 1, drafts) >= draft - slack
    assert costs.verify_slope(tokens) >= 0
