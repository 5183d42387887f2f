"""`auto` is as good as whoever knows: on a part of the grid, and in the full tier on all of it."""

import io

import pytest
from rich.console import Console

from worker.lab.grid import (
    ACCEPTANCE,
    DRAFT_COST,
    DRAFTS,
    IN_FLIGHT,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    TARGETS,
    Cell,
    Found,
    cells,
    explore,
    table,
)
from worker.lab.profile import PassCost, Profile
from worker.lab.simulate import MakesMode, Work, simulate
from worker.strategies.modes.auto import Auto
from worker.strategies.seam import Choice, Way

#: Of the best fixed choice, and of plain decoding.
ENOUGH = 0.97
#: One of each kind: t hides or not, prompts decide or not, a few rows, many.
PART = [
    Cell("flat", 0.7, 0.3, 8, 64),
    Cell("flat", 0.3, 0.9, 32, 64),
    Cell("flat", 0.95, 0.9, 2, 64),
    Cell("roofline", 0.7, 0.3, 128, 64),
    Cell("roofline", 0.95, 0.9, 32, 1024),
]


def good(found: Found) -> bool:
    return found.to_best >= ENOUGH and found.to_plain >= ENOUGH


@pytest.mark.parametrize("cell", PART, ids=str)
def test_auto_is_as_good_as_whoever_knows(cell: Cell) -> None:
    found = explore(cell)
    assert good(found), (found.to_best, found.to_plain, found.best)


def test_a_host_that_drafting_costs_more_is_seen_and_one_disturbed_step_is_not() -> None:
    """Drafts pay but for what of their steps nothing hides; the first step that is seen of each way took 150 ms."""

    def host(choice: Choice, before: int) -> float:
        return (150.0 if before in (1, 2) else 8.0) if choice.drafts else 0.5

    profile = Profile("p", 1, PassCost(20), PassCost(6), acceptance=(0.45,))
    work = Work(96, 64, OUTPUT_TOKENS)

    def run(mode: Choice | MakesMode) -> float:
        return simulate(profile, mode, work, places=8, drafts=DRAFTS, host_ms=host).tokens_per_s

    auto = run(lambda pace: Auto(DRAFTS, pace.costs, pace.acceptance, pace.prompts, ahead=True))
    fixed = {choice: run(choice) for choice in (Choice(Way.ONE, 0), Choice(Way.ONE, 1), Choice(Way.TWO, 2))}
    assert auto >= 0.96 * max(fixed.values()), fixed


@pytest.mark.full
@pytest.mark.cores
@pytest.mark.timeout(1800)
def test_auto_is_as_good_everywhere() -> None:
    bad = [(found.cell, found.to_best, found.to_plain) for found in map(explore, cells()) if not good(found)]
    assert not bad


def test_the_grid_is_whole_and_its_draft_cost_is_what_it_says() -> None:
    every = cells()
    assert len(set(every)) == len(TARGETS) * len(ACCEPTANCE) * len(DRAFT_COST) * len(IN_FLIGHT) * len(PROMPT_TOKENS)
    for cell in every:
        profile, rows = cell.profile, cell.in_flight
        assert profile.draft_ms(rows, 4) == pytest.approx(cell.draft_cost * profile.verify_ms(rows, 4))


def test_the_table_has_the_worst_last() -> None:
    found = [explore(Cell("flat", acceptance, 0.3, 2, 64)) for acceptance in (0.3, 0.95)]
    found.sort(key=lambda one: min(one.to_best, one.to_plain))
    out = io.StringIO()
    Console(file=out, width=140).print(table(found))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("virtual: ")
    assert f"{found[0].to_best:.3f}" in lines[-1]
    assert f"{found[1].to_best:.3f}" in lines[-2]
