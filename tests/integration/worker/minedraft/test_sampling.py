"""Sampled rows have the distribution that their parameters say, whatever drafts, in every engine.

Each case's answers are compared with the exact distribution, computed from the target's raw logits, and with those of
plain decoding. `statistics_of_rows.py` says how often that fails by chance (under one run of the full tier in 2,000)
and what it finds.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from exact_rows import Text, Tree, weigh
from integration.worker.minedraft import any_choice, broken_rules
from integration.worker.minedraft.both_engines import SERVED, counted, running
from integration.worker.minedraft.sampled_rows import (
    CASES,
    DRAFTS,
    FLAGS,
    LONG,
    NOT_IN_SD,
    REMEMBER,
    Target,
    body,
    counts,
    exact_trees,
    sample,
    words,
)
from statistics_of_rows import MISSED, compare, fit, found_share

from worker.engine.vllm import VllmEngine, VllmOptions
from worker.strategies.seam import Strategy

#: The first test of an engine starts it, and the first of all samples what plain decoding says, which takes minutes.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

SAMPLES, MIXED, FEW = 4000, 1000, 500
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"

TETRIS = Strategy(admission="tetris", extra=2)
ANY = Strategy(source="mixed", length="adaptive", admission="confidence")
#: How each engine differs from the first.
ENGINES: dict[str, dict[str, object]] = {
    "psd": {},
    "psd, drawn drafts": {"draft_sample_method": "probabilistic"},
    "psd, drawn drafts, TP2": {"draft_sample_method": "probabilistic", "tensor_parallel_size": 2},
    "tetris, drawn drafts": {"draft_sample_method": "probabilistic", "strategy": TETRIS},
    "any choice, drawn drafts": {"draft_sample_method": "probabilistic", "strategy": ANY, "ranks": any_choice.RANKS},
    "sd": {"mode": "sd"},
    "sd, drawn drafts": {"mode": "sd", "draft_sample_method": "probabilistic"},
}


@pytest.fixture(scope="module")
def options(tiny_pair: tuple[Path, Path]) -> VllmOptions:
    """Of a two-batch engine."""
    target, draft = map(str, tiny_pair)
    return VllmOptions(target, SERVED, "psd", draft, num_speculative_tokens=DRAFTS, max_num_seqs=64, engine_args=FLAGS)


@dataclass(slots=True)
class Plain:
    """What plain decoding says.

    Attributes:
        trees: each case's exact distribution.
        without: of the same cells, without what the case is about.
        forgetful: the same, when accepted drafts are not known to penalties and the like in the step that accepts them.
        texts: its answers.
    """

    trees: dict[str, Tree]
    without: dict[str, dict[Text, float]]
    forgetful: dict[str, dict[Text, float]]
    texts: dict[str, list[Text]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(options: VllmOptions) -> Plain:
    """All cases in an engine that has ended when the next one starts."""
    async with running(replace(options, mode="ar")) as engine:
        target = Target(engine)
        trees = await exact_trees(target, options.model, CASES, SAMPLES)
        bare = body("temperature 1"), words("temperature 1", options.model)
        without = {case: await weigh(trees[case], target.logits, *bare) for case in CASES}
        told = {case: (body(case), words(case, options.model)) for case in REMEMBER}
        forgetful = {case: await weigh(trees[case], target.logits, *what, memory=1) for case, what in told.items()}
        texts = {case: (await sample(engine, [case], SAMPLES))[case] for case in CASES}
    return Plain(trees, without, forgetful, texts)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, plain: Plain, options: VllmOptions
) -> AsyncIterator[tuple[str, VllmEngine]]:
    """Each engine that drafts, and its name. It stays until the next one: above are tests with engines of their own."""
    del plain  # which comes first: one engine at a time
    async with running(replace(options, **ENGINES[request.param])) as started:
        yield request.param, started


def taken(case: str, name: str) -> bool:
    """Whether an engine takes a case."""
    return not name.startswith("sd") or case not in NOT_IN_SD


def tell(name: str, case: str, what: object) -> None:
    """Print what was measured."""
    print(f"{name}: {case}: {what}")


def misfits(name: str, trees: Mapping[str, Tree], texts: Mapping[str, Sequence[Text]]) -> list[str]:
    """The cases whose answers are not distributed as they should be."""
    found = {case: fit(counts(trees[case], answers), trees[case].cells) for case, answers in texts.items()}
    for case, what in found.items():
        tell(name, case, what)
    return [case for case, what in found.items() if not what]


async def test_rows_of_all_kinds_in_one_batch_are_sampled_exactly(options: VllmOptions) -> None:
    async with running(replace(options, draft_sample_method="probabilistic")) as engine:
        trees = await exact_trees(Target(engine), options.model, CASES, FEW)
        before = counted(ACCEPTED)
        texts = await sample(engine, CASES, FEW)
        assert counted(ACCEPTED) > before + FEW
    assert not misfits("few", trees, texts)


@pytest.mark.full
async def test_rows_in_chunks_and_short_of_memory_are_sampled_exactly(options: VllmOptions) -> None:
    # There is no memory for 64 rows at once, and two prompts are more than a step's tokens. (Answers are too short for
    # rows to be preempted: `cases.py` has that, for rows with seeds.)
    short = f"{FLAGS} --max-model-len 512 --block-size 32 --num-gpu-blocks-override 40 --max-num-batched-tokens 64"
    async with running(replace(options, draft_sample_method="probabilistic", engine_args=short)) as engine:
        cases = ["temperature 1", "choice", "seeds", *REMEMBER]
        trees = await exact_trees(Target(engine, LONG), options.model, cases, FEW)
        texts = await sample(engine, cases, FEW, LONG)
    assert not misfits("short of memory", trees, texts)


@pytest.mark.full
async def test_a_broken_rule_is_found_out(
    options: VllmOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, said = "temperature 1", tmp_path / "broken"
    monkeypatch.setenv(broken_rules.FILE, str(said))
    said.write_text(broken_rules.RIGHT)
    broken = replace(options, draft_sample_method="probabilistic", ranks=broken_rules.RANKS)
    found = {}
    async with running(broken) as engine:
        tree = (await exact_trees(Target(engine), options.model, [case], SAMPLES))[case]
        for wrong in (broken_rules.RIGHT, *broken_rules.WRONG):
            said.write_text(wrong)
            found[wrong] = fit(counts(tree, (await sample(engine, [case], SAMPLES))[case]), tree.cells)
            tell("broken", wrong, found[wrong])
    assert found.pop(broken_rules.RIGHT)
    assert not any(found.values())


@pytest.mark.full
async def test_tetris_that_looks_at_what_was_drawn_is_found_out(
    options: VllmOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, said = "temperature 1", tmp_path / "broken"
    monkeypatch.setenv(broken_rules.FILE, str(said))
    said.write_text(broken_rules.RIGHT)
    broken = replace(options, draft_sample_method="probabilistic", ranks=broken_rules.RANKS, strategy=TETRIS)
    found = {}
    async with running(broken) as engine:
        tree = (await exact_trees(Target(engine), options.model, [case], SAMPLES))[case]
        for rule in (broken_rules.RIGHT, broken_rules.NAIVE):
            said.write_text(rule)
            found[rule] = fit(counts(tree, (await sample(engine, [case], SAMPLES))[case]), tree.cells)
            tell("tetris", rule, found[rule])
    assert found[broken_rules.RIGHT]
    assert not found[broken_rules.NAIVE]


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
async def test_plain_decoding_is_as_computed(plain: Plain, case: str) -> None:
    assert not misfits("ar", plain.trees, {case: plain.texts[case]})


@pytest.mark.full
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("temperature 1", "seeds")])
async def test_an_ignored_parameter_would_be_found(plain: Plain, case: str) -> None:
    share = found_share(plain.trees[case].cells, plain.without[case], SAMPLES, times=100)
    tell("power", case, share)
    assert share >= 1 - MISSED


@pytest.mark.full
@pytest.mark.parametrize("case", REMEMBER)
async def test_accepted_drafts_that_are_not_known_at_once_would_be_found(plain: Plain, case: str) -> None:
    share = found_share(plain.trees[case].cells, plain.forgetful[case], SAMPLES, times=100)
    tell("power, forgetful", case, share)
    assert share >= 1 - MISSED


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
async def test_rows_of_one_kind_are_sampled_exactly(plain: Plain, engine: tuple[str, VllmEngine], case: str) -> None:
    name, running_engine = engine
    if not taken(case, name):
        return
    texts, tree = await sample(running_engine, [case], SAMPLES), plain.trees[case]
    as_plain = compare(counts(tree, texts[case]), counts(tree, plain.texts[case]))
    tell(f"{name} against ar", case, as_plain)
    assert not misfits(name, plain.trees, texts)
    assert as_plain
    if "seed" in CASES[case] and not name.startswith("sd"):
        assert texts[case] == plain.texts[case]


@pytest.mark.full
async def test_rows_of_all_kinds_are_sampled_exactly_side_by_side(plain: Plain, engine: tuple[str, VllmEngine]) -> None:
    name, running_engine = engine
    cases = [case for case in CASES if taken(case, name)]
    texts = await sample(running_engine, cases, MIXED)
    assert not misfits(f"{name}, mixed", plain.trees, texts)
