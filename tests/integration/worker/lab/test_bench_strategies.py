"""Strategies on imagined devices, in real engines: the same texts, and each does what it is for."""

import pytest
from integration.worker.lab.turns import turn

from worker.lab import pairs, prompts
from worker.lab.bench import SCENARIOS, Wanted, measure
from worker.lab.profiles import profile
from worker.lab.result import Bench

pytestmark = pytest.mark.full  # two minutes
M, DRAFTS, TOKENS, ACCEPTANCE = 8, 3, 96, 0.6
NAMES = ("ar", "psd+tetris(2m)", "psd+confidence(2m)", "psd+mixed(2m)", "pearl(2m)", "auto(2m)")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    tiny = str(pairs.tiny(folder / "models"))
    wanted = Wanted(
        pair="imagined",
        target=tiny,
        draft=tiny,
        m=M,
        drafts={name: SCENARIOS[name].drafts(DRAFTS, told=True) for name in NAMES[1:]},
        rows=prompts.rows((), 8 * M, TOKENS, max_prompt_chars=100),
        turns=1,
        scenarios=NAMES,
        profile=profile(f"flat:20,10,{ACCEPTANCE},token=1,spread=0.6,template=0.6", DRAFTS),
    )
    return measure(wanted, folder, print)


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_says_what_plain_decoding_says(bench: Bench, name: str) -> None:
    print(name, turn(bench, name))
    assert turn(bench, name).same_texts == 1
    assert turn(bench, name).tokens == bench.rows * TOKENS


def test_surer_drafts_are_verified_and_accepted_more_often_than_the_mean(bench: Bench) -> None:
    """Of five drafts a row TETRIS verifies three in the mean, the first of nearly all rows and others where it pays."""
    tetris, confidence = turn(bench, "psd+tetris(2m)"), turn(bench, "psd+confidence(2m)")
    assert DRAFTS - 0.5 < (tetris.verified_drafts or 0) <= DRAFTS + 0.01
    assert len(tetris.acceptance_at) == DRAFTS + 2
    assert tetris.acceptance_at[1] > ACCEPTANCE + 0.05
    assert (confidence.verified_drafts or DRAFTS) < DRAFTS - 0.5
    assert confidence.acceptance_at[0] > ACCEPTANCE + 0.05


def test_a_template_is_found_in_rows_that_are_done(bench: Bench) -> None:
    assert turn(bench, "psd+mixed(2m)").acceptance_at[0] > ACCEPTANCE + 0.05


def test_rows_take_turns_as_was_asked(bench: Bench) -> None:
    assert turn(bench, "pearl(2m)").ahead == 1
    assert turn(bench, "pearl(2m)").steady_steps > 0
    assert (turn(bench, "pearl(2m)").hidden_share or 0) > 0.5
    assert (turn(bench, "psd+tetris(2m)").in_two or 0) > 0.8
