"""Scenarios in numbers, against sums done by hand."""

import math

import pytest

from worker.lab.predict import Prediction, Workload, predict
from worker.lab.profile import PassCost, Profile
from worker.lab.profiles import profile
from worker.lab.result import Mode, Scenario
from worker.lab.timings import ProfileTimings, WithDrafter

FLAT = ProfileTimings(profile("flat:25,15,0.5", drafts=2), {"ar": 3.0, "sd": 4.0, "psd": 1.0})
ROWS = Workload(prompt_tokens=100, output_tokens=201)


def of(mode: Mode, in_flight: int, drafts: int, timings: ProfileTimings = FLAT, rows: Workload = ROWS) -> Prediction:
    return predict(timings, Scenario(mode, mode, in_flight, drafts, 5 if mode == "psd" else 4), rows)


def test_plain_decoding_gives_every_row_a_token_a_step() -> None:
    ar = of("ar", 64, 0)
    assert (ar.verify_ms, ar.draft_ms, ar.step_ms, ar.tokens_a_cycle) == (25, 0, 28, 1)
    assert ar.steady_tokens_per_s == pytest.approx(64 / 0.028)
    assert ar.tokens_per_s == pytest.approx(64 / 0.028)  # flat: prompts cost nothing, and each gives a token


def test_one_batch_drafts_then_verifies() -> None:
    sd = of("sd", 32, 2)
    assert (sd.verify_ms, sd.draft_ms, sd.step_ms, sd.tokens_a_cycle) == (25, 15, 44, 1.75)
    assert sd.steady_tokens_per_s == pytest.approx(32 * 1.75 / 0.044)
    # A row: its prompt's pass and 200 / 1.75 more.
    assert sd.tokens_per_s == pytest.approx(32 * 201 / (1 + 200 / 1.75) / 0.044)


def test_two_batches_take_the_longer_of_both_for_half_of_the_rows() -> None:
    psd = of("psd", 64, 2)
    assert psd.step_ms == 26
    assert psd.steady_tokens_per_s == pytest.approx(32 * 1.75 / 0.026)
    assert psd.tokens_per_s_per_device == psd.tokens_per_s / 5


def test_a_slow_drafter_sets_the_step_of_two_batches() -> None:
    assert of("psd", 64, 4).step_ms == 31


def test_what_is_in_flight_is_throughput_times_time() -> None:
    assert of("psd", 64, 2).ms_per_token == pytest.approx(2 * 26 / 1.75, rel=0.01)
    assert of("sd", 64, 2).ms_per_token == pytest.approx(44 / 1.75, rel=0.01)


def test_an_odd_row_makes_one_batch_larger() -> None:
    linear = ProfileTimings(Profile("p", 4, PassCost(0, token_ms=1), PassCost(0, token_ms=0.1)))
    psd = of("psd", 5, 1, linear)
    assert psd.verify_ms == 6
    assert psd.steady_tokens_per_s == pytest.approx(2.5 * psd.tokens_a_cycle / psd.step_ms * 1e3)


def test_prompts_cost_what_their_tokens_cost() -> None:
    linear = ProfileTimings(Profile("p", 4, PassCost(2, token_ms=1), PassCost(0)))
    ar = of("ar", 8, 0, linear)
    # Each row: 100 tokens of prompt and 200 of its answer are computed, and 201 passes of 2 ms are shared by 8.
    assert ar.tokens_per_s == pytest.approx(201 / (300 + 201 * 2 / 8) * 1e3, rel=1e-3)


def test_prompts_come_in_lumps_that_the_room_of_a_pass_does_not_swallow() -> None:
    room = ProfileTimings(Profile("p", 4, PassCost(0, floor_ms=20, token_ms=1), PassCost(0)))
    ar = of("ar", 8, 0, room)  # 12 tokens of a pass are free, a prompt of 100 is not; 4 tokens a pass in the mean
    assert ar.step_ms == 20
    assert ar.tokens_per_s < 0.9 * ar.steady_tokens_per_s


def test_a_prompt_for_the_drafter_counts_in_two_batches() -> None:
    drafter = ProfileTimings(Profile("p", 4, PassCost(10), PassCost(9, token_ms=1)))
    assert of("psd", 8, 1, drafter).tokens_per_s < of("psd", 8, 1, drafter).steady_tokens_per_s


def test_context_is_the_prompt_and_half_of_the_answer() -> None:
    cost = PassCost(0, context_token_ms=0.5)
    assert of("ar", 8, 0, ProfileTimings(Profile("p", 4, cost, PassCost(0)))).step_ms == 8 * 200 * 0.5


@pytest.mark.parametrize("output_tokens", [1, 2, 5])
def test_short_answers_are_mostly_prompts(output_tokens: int) -> None:
    for mode, drafts in (("ar", 0), ("sd", 2), ("psd", 2)):
        short = of(mode, 8, drafts, rows=Workload(100, output_tokens))
        assert 0 < short.tokens_per_s < 8 * 3 / 0.02


def test_a_share_of_the_drafter_is_a_share_of_t_only() -> None:
    half = WithDrafter(FLAT, 0.5)
    assert (half.draft_ms(8, 2), half.verify_ms(8, 2), half.host_ms("sd", 8), half.accepted_at(0)) == (7.5, 25, 4, 0.5)


def test_rows_that_are_hardly_more_than_a_prompt_in_a_large_batch() -> None:
    """So many prompts come together that a computer's e to the power of minus their number is nothing."""
    linear = ProfileTimings(Profile("p", 4, PassCost(1, token_ms=0.001), PassCost(0.1)))
    for in_flight in (1024, 4096):
        for mode, drafts in (("ar", 0), ("psd", 2)):
            found = predict(linear, Scenario("x", mode, in_flight, drafts, 4), Workload(100, 1))
            assert 0 < found.tokens_per_s < math.inf


@pytest.mark.parametrize(
    ("alpha_v", "ratio"),
    [
        (0.1, 1.44),
        (0.5, 1.86),
        (1, 1.99),
        (1.26, 2.00),
        (1.68, 1.98),
        (3, 1.82),
        (5.2, 1.59),
        (10, 1.36),
        (20, 1.21),
    ],
)
def test_the_methods_own_theory(alpha_v: float, ratio: float) -> None:
    """MineDraft, section "Theory": drafting for a time t gets a share 1 - exp(-alpha t) of all that could be accepted,
    for V + t with one batch and max(V, t) with two; each takes the t that is best for it.

    Drafts so cheap that they come at any moment, each accepted as often as makes the two alike, are that model.
    """
    drafts_a_v = 500
    timings = ProfileTimings(
        Profile("p", 4, PassCost(1), PassCost(1 / drafts_a_v), acceptance=(math.exp(-alpha_v / drafts_a_v),))
    )
    tried = [round(drafts_a_v * 1.03**power) for power in range(-120, 60)]

    def best(mode: Mode, in_flight: int) -> float:
        return max(of(mode, in_flight, drafts, timings).steady_tokens_per_s for drafts in tried if drafts)

    assert best("psd", 2) / best("sd", 1) == pytest.approx(ratio, abs=0.006)
