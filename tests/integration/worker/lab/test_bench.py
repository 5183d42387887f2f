"""A bench on imagined devices: real engines, scheduler, link and clock; only the models' time and ids are made up."""

import json
from pathlib import Path

import pytest
from integration.worker.lab.turns import turn

from worker.lab import follow, pairs, prompts, trace
from worker.lab.bench import Wanted, measure
from worker.lab.measured import measured_fleet
from worker.lab.plan import predict_bench
from worker.lab.plan_report import compare
from worker.lab.predict import Workload
from worker.lab.profiles import profile
from worker.lab.result import Bench
from worker.minedraft.stages import DRAFTER, ENGINE, Stage, verifier_name

pytestmark = pytest.mark.full  # a minute and a half
V, T, ACCEPTANCE, M, DRAFTS, TOKENS = 25.0, 15.0, 0.7, 8, 3, 48
SCENARIOS = ("ar", "sd(m)", "psd(2m)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def bench(folder: Path) -> Bench:
    tiny = str(pairs.tiny(folder / "models"))
    wanted = Wanted(
        pair="imagined",
        target=tiny,
        draft=tiny,
        m=M,
        drafts={"sd(m)": DRAFTS, "psd(2m)": DRAFTS},
        rows=prompts.rows((), 4 * M, TOKENS, max_prompt_chars=100),
        turns=1,
        scenarios=SCENARIOS,
        profile=profile(f"flat:{V},{T},{ACCEPTANCE}", DRAFTS),
    )
    return measure(wanted, folder, print)


def test_every_mode_says_the_same(bench: Bench) -> None:
    assert bench.virtual
    for name in SCENARIOS:
        assert turn(bench, name).same_texts == 1
        assert turn(bench, name).tokens == bench.rows * TOKENS


def test_passes_take_the_time_that_the_profile_says(bench: Bench) -> None:
    """And a little more: V is from the start of preparing to the end of sampling."""
    for name in SCENARIOS:
        assert V <= (turn(bench, name).verify_ms or 0) < V + 10
    for name in ("sd(m)", "psd(2m)"):
        assert T <= (turn(bench, name).draft_ms or 0) < T + 3


def test_drafts_are_accepted_as_often_as_the_profile_says(bench: Bench) -> None:
    """At each position, in both modes; and in both the same drafts are."""
    for name in ("sd(m)", "psd(2m)"):
        found = turn(bench, name).acceptance_at
        assert len(found) == DRAFTS
        assert all(abs(share - ACCEPTANCE) < 0.1 for share in found), found
    assert turn(bench, "sd(m)").acceptance == pytest.approx(turn(bench, "psd(2m)").acceptance, abs=0.01)


def test_two_batches_hide_the_drafts(bench: Bench) -> None:
    sd, psd = turn(bench, "sd(m)"), turn(bench, "psd(2m)")
    print(psd)
    assert (psd.hidden_share or 0) > 0.8
    assert sd.hidden_share == 0
    assert (psd.imbalance or 0) < 0.2
    assert (psd.steady_tokens_per_s or 0) / (
        sd.steady_tokens_per_s or 1
    ) > 1.2  # (25 + 15) / 25 = 1.6 on a quiet machine


def test_the_plan_foresees_two_batches_from_the_others(bench: Bench) -> None:
    predictions = predict_bench(bench, measured_fleet(bench, 4), Workload(60, TOKENS))
    found = {ratio.scenario.name: ratio.deviation for ratio in compare(bench, predictions).ratios}
    print(found)
    assert set(found) == set(SCENARIOS)
    assert all(abs(deviation) < 0.3 for deviation in found.values())  # 0.1 on a quiet machine: `worker plan --check`


@pytest.mark.parametrize(
    ("name", "ranks"), [("psd(2m)", {verifier_name(0), DRAFTER, ENGINE}), ("ar", {verifier_name(0), ENGINE})]
)
def test_what_the_ranks_recorded_is_kept_and_drawn(bench: Bench, folder: Path, name: str, ranks: set[str]) -> None:
    assert bench.virtual
    records, meta = follow.load(folder / f"{name}.npz")
    assert set(records) == ranks
    assert meta["virtual"]
    engine = records[ENGINE]
    assert (engine["end"][:, Stage.SCHEDULE] > engine["begin"][:, Stage.SCHEDULE]).mean() > 0.9
    assert (engine["end"][:, Stage.UPDATE] > engine["begin"][:, Stage.UPDATE]).mean() > 0.9
    drawn = trace.events(records, virtual=True, title=name)
    assert {"schedule", "update", "forward"} <= {event["name"].split()[0] for event in drawn["traceEvents"]}
    assert json.loads(json.dumps(drawn)) == drawn
