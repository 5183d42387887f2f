"""Passes and pairs: what each part of a time depends on."""

import pytest

from worker.lab.profile import PassCost, Profile, tokens_a_cycle

COST = PassCost(fixed_ms=1, floor_ms=10, token_ms=0.5, context_token_ms=0.001, link_token_ms=0.25)


def test_a_pass_reads_the_weights_or_computes_its_tokens_whichever_is_longer() -> None:
    assert COST.ms(8) == 1 + 10 + 8 * 0.25
    assert COST.ms(40) == 1 + 20 + 40 * 0.25
    assert COST.ms(8, context=1000) == 1 + 10 + 2 + 1


def test_v_is_a_pass_over_what_was_sampled_and_its_drafts() -> None:
    pair = Profile("p", 4, COST, PassCost(1))
    assert pair.verify_ms(16, 3, context=100, prefill=6) == COST.ms(16 * 4 + 6, 16 * 100)
    assert pair.verify_ms(16, 0) == COST.ms(16)


def test_t_is_a_pass_over_what_was_verified_and_one_for_each_draft_but_the_last() -> None:
    pair = Profile("p", 4, PassCost(1), COST)
    assert pair.draft_ms(16, 3, context=10, prefill=6) == COST.ms(16 * 4 + 6, 160) + 2 * COST.ms(16, 160)
    assert pair.draft_ms(16, 0) == 0


def test_a_drafter_of_which_no_draft_is_asked_reads_what_was_verified() -> None:
    pair = Profile("p", 4, PassCost(1), COST)
    assert pair.passes_ms(16, 70, 0, context=10) == pair.passes_ms(16, 70, 1, context=10) == COST.ms(70, 160)
    assert pair.passes_ms(16, 70, 3, context=10) == pair.draft_ms(16, 3, context=10, prefill=6)


def test_the_last_acceptance_holds_for_all_later_positions() -> None:
    pair = Profile("p", 4, COST, COST, acceptance=(0.9, 0.5))
    assert [pair.accepted_at(position) for position in range(4)] == [0.9, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("elsewhere", [None, COST])
def test_a_profile_travels_as_text(elsewhere: PassCost | None) -> None:
    pair = Profile("p", 4, COST, PassCost(2), elsewhere, elsewhere, elsewhere, (0.9, 0.5), 0.2, 0.3, ("a source",))
    assert Profile.from_json(pair.to_json()) == pair


def test_a_row_gets_one_token_and_every_draft_that_all_before_led_to() -> None:
    assert tokens_a_cycle([]) == 1
    assert tokens_a_cycle([0.8, 0.5]) == pytest.approx(1 + 0.8 + 0.4)
