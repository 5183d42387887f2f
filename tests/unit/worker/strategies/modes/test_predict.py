"""What choices give, by known times: the paper's rules, and the chain of rows that are drafted ahead, drawn."""

import numpy as np
import pytest
from devices import Devices
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.predict import price, step, step_ms, tokens_per_ms
from worker.strategies.modes.prompts import Reading
from worker.strategies.seam import Choice, Way


def flat(v: float, t: float, accepted: float = 0.7, **host: float) -> Devices:
    return Devices(lambda _: v, lambda _: t, accepted, {Way[way]: ms for way, ms in host.items()})


def rate(choice: Choice, rows: float, devices: Devices) -> float:
    found = tokens_per_ms(choice, rows, devices, devices)
    assert found is not None
    return found


def test_each_way_takes_what_the_method_says() -> None:
    devices = flat(20, 3, TWO=1, ONE=2, AHEAD=4)
    gained = devices.tokens(4)
    assert rate(Choice(Way.TWO, 4), 16, devices) == pytest.approx(8 * gained / 21)
    assert rate(Choice(Way.ONE, 4), 16, devices) == pytest.approx(16 * gained / (20 + 12 + 2))
    assert rate(Choice(Way.ONE, 0), 16, devices) == pytest.approx(16 / 22)
    assert rate(Choice(Way.TWO, 0), 16, devices) == pytest.approx(8 / 21)
    assert rate(Choice(Way.AHEAD, 4), 16, devices) == pytest.approx(step(Choice(Way.AHEAD, 4), 16, devices).gained / 24)


def test_without_drafts_a_step_has_its_own_host_time() -> None:
    devices = Devices(lambda _: 20.0, lambda _: 3.0, host={Way.ONE: 8.0}, plain_host={Way.ONE: 0.5})
    assert rate(Choice(Way.ONE, 0), 16, devices) == pytest.approx(16 / 20.5)
    assert rate(Choice(Way.ONE, 1), 16, devices) == pytest.approx(16 * 1.7 / (20 + 3 + 8))


def test_found_drafts_pay_without_the_drafter_s() -> None:
    devices, acceptance = flat(20, 10), Acceptance()
    acceptance.add([10_000] * 2, [5_000, 2_500])
    for _ in range(300):
        acceptance.yields.add(0, 16, 48, 40)
        acceptance.yields.add(2, 16, 48, 40)
    plain, asked = (tokens_per_ms(Choice(Way.ONE, drafts), 16, devices, acceptance) or 0 for drafts in (0, 2))
    assert plain == pytest.approx(16 * 3.5 / 20, rel=0.03)
    assert asked == pytest.approx(16 * 3.5 / 40, rel=0.03)
    assert step(Choice(Way.ONE, 0), 16, acceptance).tokens == pytest.approx(16 * 4, rel=0.03)


def test_a_drafter_that_is_slower_than_the_target_decides_even_without_drafts() -> None:
    devices = flat(20, 30)
    assert rate(Choice(Way.ONE, 0), 16, devices) == pytest.approx(16 / 30)
    assert rate(Choice(Way.TWO, 2), 16, devices) == pytest.approx(8 * devices.tokens(2) / 60)


@pytest.mark.parametrize("accepted", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("drafts", [2, 5])
def test_rows_that_are_drafted_ahead_hit_as_often_as_drawn_ones(accepted: float, drafts: int) -> None:
    luck = np.random.default_rng(1).random((200_000, drafts)) < accepted
    right = np.cumprod(luck, axis=1).sum(axis=1)
    gained = verified = hit = 0
    for count in right.tolist():
        verified += 1 + (drafts - 1) * hit
        gained += 1 + min(count, drafts - 1) * hit
        hit = int(count >= (drafts if hit else 1))
    made = step(Choice(Way.AHEAD, drafts), 1, flat(1, 1, accepted))
    assert made.tokens == pytest.approx(verified / len(right), rel=0.02)
    assert made.gained == pytest.approx(gained / len(right), rel=0.02)


@given(
    drafts=st.integers(1, 8),
    rows=st.integers(2, 200),
    v=st.floats(0.1, 100),
    t=st.floats(0.01, 50),
    accepted=st.floats(0, 1),
)
def test_nothing_gives_more_than_twice_one_batch_or_half_of_it(
    drafts: int, rows: int, v: float, t: float, accepted: float
) -> None:
    """Table "Theory" of the paper: at most 2, where V does not depend on the batch and as many rows are verified."""
    devices = flat(v, t, accepted)
    one, two = rate(Choice(Way.ONE, drafts), rows, devices), rate(Choice(Way.TWO, drafts), 2 * rows, devices)
    assert one <= two * (1 + 1e-9) <= 2 * one * (1 + 1e-9)


def test_prompts_come_in_lumps() -> None:
    """A fifth of the passes has one, which costs 80 ms of V and 8 of t beyond the floor."""
    devices = Devices(lambda tokens: max(20.0, tokens / 10), lambda tokens: max(2.0, tokens / 100), 0.0)
    reading = Reading(share=20.0, lump=1000.0)

    def ms(choice: Choice) -> float:
        made = step(choice, 10, devices)
        assert made.gained == 10
        taken = step_ms(choice, made, devices, reading)
        assert taken is not None
        return taken

    verify, draft = 0.8 * 20 + 0.2 * 102, 0.8 * 2 + 0.2 * 10.2
    assert ms(Choice(Way.ONE, 1)) == pytest.approx(verify + draft)
    assert ms(Choice(Way.ONE, 0)) == pytest.approx(0.8 * 20 + 0.2 * 101)
    assert step_ms(Choice(Way.ONE, 1), step(Choice(Way.ONE, 1), 10, devices), devices) == 22


def test_a_prompt_for_the_drafter_meets_a_pass_without_one() -> None:
    devices = Devices(lambda _: 20.0, lambda tokens: 30.0 if tokens > 100 else 2.0, 0.0)
    half = Reading(share=100.0, lump=1000.0)  # 5 tokens a call: a prompt in every second one
    made = step(Choice(Way.TWO, 1), 10, devices)
    assert step_ms(Choice(Way.TWO, 1), made, devices, half) == pytest.approx((20 + 30) / 2)


def test_before_anything_was_measured_nothing_is_said() -> None:
    costs, acceptance = Costs(), Acceptance()
    assert tokens_per_ms(Choice(Way.TWO, 3), 8, costs, acceptance) is None
    assert price(Choice(Way.TWO, 3), 8, costs, acceptance) == 0
    costs.verified(8, 32, 20.0)
    assert tokens_per_ms(Choice(Way.TWO, 3), 8, costs, acceptance) is None


def test_what_is_learnt_says_what_is_true() -> None:
    devices = Devices(lambda tokens: 2 + max(20, tokens / 8), lambda tokens: 1 + tokens / 100, 0.8, {Way.TWO: 1.0})
    costs, acceptance = devices.learnt()
    for choice in (Choice(Way.TWO, 4), Choice(Way.ONE, 2), Choice(Way.ONE, 0), Choice(Way.AHEAD, 4)):
        for rows in (4, 16, 60, 128):
            learnt = tokens_per_ms(choice, rows, costs, acceptance)
            host = {**devices.host, Way.ONE: 1.0, Way.AHEAD: 1.0}  # the least that was seen
            assert learnt == pytest.approx(
                rate(choice, rows, Devices(devices.verify, devices.draft, 0.8, host)), rel=0.05
            )


def test_a_verified_token_costs_what_devices_would_make_meanwhile() -> None:
    devices = Devices(lambda tokens: 10 + tokens, lambda _: 1.0)
    made = 8 * devices.tokens(3) / (10 + 32)
    assert price(Choice(Way.TWO, 3), 16, devices, devices) == pytest.approx(made)
    assert price(Choice(Way.TWO, 3), 0, devices, devices) == 0


def test_it_costs_nothing_while_v_does_not_grow_or_hides_behind_t() -> None:
    assert price(Choice(Way.TWO, 3), 16, flat(20, 1), flat(20, 1)) == 0
    hidden = Devices(lambda tokens: 10 + tokens, lambda _: 100.0)
    assert price(Choice(Way.TWO, 3), 16, hidden, hidden) == 0
    assert price(Choice(Way.AHEAD, 3), 16, hidden, hidden) == 0
    assert price(Choice(Way.ONE, 3), 16, hidden, hidden) > 0
