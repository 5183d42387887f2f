"""What each way to answer rows is started with."""

from dataclasses import replace
from pathlib import Path

import pytest

from producer.record.models import Row
from worker.lab import modes
from worker.lab.bench import DEFAULT_SCENARIOS, SCENARIOS, Wanted, asked_tokens, scenario, setups
from worker.lab.profile import Profile
from worker.lab.profiles import profile
from worker.lab.side_common import Told
from worker.strategies.seam import Strategy

ROWS = (Row(0, 1, "a", "/v1/completions", {"prompt": "x"}),)
REAL = Wanted(
    pair="embedded",
    target="/target",
    draft="/draft",
    m=4,
    drafts={"sd(m)": 2, "sd(2m)": 1, "sd(all)": 2, "psd(2m)": 3, "psd(redis)": 3}
    | {name: way.drafts(3, told=True) for name, way in SCENARIOS.items() if way.strategy != Strategy()},
    rows=ROWS,
    turns=1,
    scenarios=tuple(SCENARIOS),
    verifier_cpus=(0, 1),
    drafter_cpus=(2,),
)
VIRTUAL = replace(REAL, profile=profile("qwen3-32b+4b"), verifier_cpus=(), drafter_cpus=())


@pytest.mark.parametrize(
    ("name", "in_flight", "batch", "drafts", "devices"),
    [
        ("run-batch", 8, 8, 0, 1),
        ("ar", 8, 8, 0, 1),
        ("sd(m)", 4, 4, 2, 1),
        ("sd(2m)", 8, 8, 1, 1),
        ("sd(all)", 8, 8, 2, 2),
        ("ar(all)", 8, 8, 0, 2),
        ("psd(2m)", 8, 4, 3, 2),
        ("psd(redis)", 8, 4, 3, 2),
        ("psd+tetris(2m)", 8, 4, 5, 2),
        ("psd+mixed(2m)", 8, 4, 3, 2),
        ("pearl(2m)", 8, 8, 3, 2),
        ("auto(2m)", 8, 8, 3, 2),
        ("ar(redis)", 8, 8, 0, 1),
    ],
)
def test_scenarios(name: str, in_flight: int, batch: int, drafts: int, devices: int) -> None:
    found = scenario(REAL, name)
    assert (found.in_flight, found.batch, found.drafts, found.devices) == (in_flight, batch, drafts, devices)


def test_ways_that_need_more_drafts_than_is_usual_have_them() -> None:
    drafts = {
        (name, usual, told): SCENARIOS[name].drafts(usual, told=told)
        for name, usual, told in (
            *(("psd(2m)", 1, False), ("psd+tetris(2m)", 1, False), ("psd+tetris(2m)", 3, True)),
            *(("pearl(2m)", 1, True), ("pearl(2m)", 4, True)),
            *(("auto(2m)", 1, False), ("auto(2m)", 1, True), ("auto(2m)", 7, False)),
        )
    }
    assert list(drafts.values()) == [1, 3, 5, 2, 4, 5, 1, 7]


def test_each_strategy_is_the_engines_own_and_is_said() -> None:
    asked = {setup.scenario.name: setup for setup in setups(REAL, Path("/rows"))}
    for name, setup in asked.items():
        assert setup.scenario.strategy == setup.told.options.strategy == SCENARIOS[name].strategy
    strategies = [SCENARIOS[name].strategy for name in asked if "psd" in name or name.startswith(("pearl", "auto"))]
    assert len(set(strategies)) == len(strategies) - 1  # psd(redis) is psd(2m)
    assert asked["psd+tetris(2m)"].told.options.strategy == Strategy(admission="tetris", extra=2)
    assert asked["auto(2m)"].told.options.mode == "psd"
    assert [name for name, setup in asked.items() if setup.scenario.overlaps] == ["psd(2m)", "psd(redis)"]


def test_every_way_the_paper_and_its_critics_ask_for_is_measured_unless_told() -> None:
    assert DEFAULT_SCENARIOS == ("run-batch", "ar", "sd(m)", "sd(2m)", "sd(all)", "psd(2m)")


def test_each_way_has_the_cores_of_its_devices() -> None:
    cores = {
        setup.scenario.name: (setup.told.options.verifier_cpus, setup.told.options.drafter_cpus)
        for setup in setups(REAL, Path("/rows"))
    }
    assert cores == {
        "run-batch": ((0, 1), ()),
        "ar": ((0, 1), ()),
        "sd(m)": ((0, 1), ()),
        "sd(2m)": ((0, 1), ()),
        "sd(all)": ((0, 1, 2), ()),
        "ar(all)": ((0, 1, 2), ()),
        "psd(2m)": ((0, 1), (2,)),
        "psd(redis)": ((0, 1), (2,)),
        "ar(redis)": ((0, 1), ()),
        **{name: ((0, 1), (2,)) for name, way in SCENARIOS.items() if way.strategy != Strategy()},
    }


def test_imagined_devices_are_in_the_environment_and_all_of_them_where_all_are_used() -> None:
    targets = {
        setup.scenario.name: Profile.from_json(setup.variables[modes.PROFILE]).target
        for setup in setups(VIRTUAL, Path("/rows"))
    }
    assert VIRTUAL.profile is not None
    assert targets["sd(2m)"] == targets["psd(2m)"] == targets["run-batch"] == VIRTUAL.profile.target
    assert targets["sd(all)"] == targets["ar(all)"] == VIRTUAL.profile.target_on_all
    drafts = {
        setup.scenario.name: Profile.from_json(setup.variables[modes.PROFILE]).draft
        for setup in setups(VIRTUAL, Path("/rows"))
    }
    assert drafts["psd(2m)"] == VIRTUAL.profile.draft
    assert drafts["sd(m)"] == drafts["sd(all)"] == VIRTUAL.profile.draft_on_target != VIRTUAL.profile.draft


def test_a_target_that_cannot_be_divided_among_all_devices_is_not_measured_there() -> None:
    names = [setup.scenario.name for setup in setups(replace(VIRTUAL, profile=profile("flat:25,10")), Path("/rows"))]
    assert names == [name for name in SCENARIOS if not name.endswith("(all)")]


@pytest.mark.parametrize("wanted", [REAL, VIRTUAL])
def test_what_a_side_is_told_survives_the_way_to_it(wanted: Wanted) -> None:
    for setup in setups(wanted, Path("/rows")):
        assert Told.from_json(setup.told.to_json()) == setup.told
        assert setup.told.virtual == (wanted is VIRTUAL)


@pytest.mark.parametrize(
    ("bodies", "found"),
    [
        ([{"max_tokens": 9}, {"max_tokens": 4}, {"max_tokens": 512}], (4, 512)),
        ([{"max_tokens": 9}, {}], (0, 0)),
        ([{"max_tokens": 9}, {"max_tokens": "many"}], (0, 0)),
    ],
)
def test_what_rows_ask_for(bodies: list[dict[str, object]], found: tuple[int, int]) -> None:
    rows = [replace(ROWS[0], body=body) for body in bodies]
    assert asked_tokens(rows) == found


def test_nothing_of_a_turn_before_is_reused() -> None:
    for setup in setups(REAL, Path("/rows")):
        assert "--no-enable-prefix-caching" in setup.told.options.engine_args
