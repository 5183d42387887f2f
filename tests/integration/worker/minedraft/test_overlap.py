"""Drafting one batch hides behind verifying the other: by the stage clock, and by what the processes' cores did."""

import time
from pathlib import Path

from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import SERVED, Rings, ask, ranks, running

from worker.engine.vllm import VllmOptions
from worker.lab.pairs import HEAVY, build_pair
from worker.minedraft import names
from worker.minedraft.measures import summary

DRAFTS, IN_FLIGHT, TOKENS = 4, 16, 64


async def test_drafting_hides_behind_verifying(tmp_path: Path) -> None:
    """On two quiet cores nearly all of it does (0.95 and more); another program on one of them costs some."""
    target, draft = map(str, build_pair(tmp_path, shape=HEAVY))
    options = VllmOptions(target, SERVED, "psd", draft, num_speculative_tokens=DRAFTS, max_num_seqs=IN_FLIGHT)
    rows = [
        completion(f"Prompt number {i} about the license", max_tokens=TOKENS, temperature=0, ignore_eos=True)
        for i in range(2 * IN_FLIGHT)
    ]
    async with running(options) as engine:
        rings, processes = Rings(engine), ranks()
        cores = {name: processes[name] for name in (names.DRAFTER, names.verifier(0))}
        before, start = {name: sum(core.cpu_times()[:2]) for name, core in cores.items()}, time.monotonic()
        await ask(engine, rows)
        seconds = time.monotonic() - start
        busy = {name: (sum(core.cpu_times()[:2]) - before[name]) / seconds for name, core in cores.items()}
        measured = summary(*rings.read())
    print(f"{measured}; cores busy: {busy}")
    assert measured.steady_calls > 30
    assert measured.step_ms > 50
    assert measured.draft_ms < measured.verify_ms
    assert measured.hidden_share > 0.7
    # The two compute at the same time: one core could not do this much.
    assert busy[names.verifier(0)] > 0.6
    assert busy[names.DRAFTER] > 0.4
    assert sum(busy.values()) > 1.3
