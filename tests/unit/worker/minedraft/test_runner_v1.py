"""What of the adapter to vLLM's V1 runner needs no model."""

from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from worker.minedraft.runner_v1 import DrafterRunner
from worker.minedraft.stages import StageClock, StageReader

DRAFTS, CONTEXT = 3, 100


@pytest.mark.parametrize(("longest", "asked"), [(CONTEXT - DRAFTS, DRAFTS), (CONTEXT - DRAFTS + 1, 0)])
def test_the_record_of_a_call_near_the_end_of_the_context_says_that_nothing_is_drafted(
    longest: int, asked: int, tmp_path: Path
) -> None:
    """Or one pass would be taken for what it takes to draft as many tokens as were asked for."""
    runner: Any = DrafterRunner.__new__(DrafterRunner)
    runner.clock, runner.drafter = StageClock(tmp_path / "ring"), Thing()
    runner.num_spec_tokens, runner.effective_drafter_max_model_len = DRAFTS, CONTEXT
    runner.speculative_config = Thing(use_dflash=lambda: False)
    runner.clock.begin(1)
    runner.clock.count(requests=2, tokens=8, prefill=0, asked=DRAFTS, way=1)
    assert runner._input_fits_in_drafter(Thing(max_seq_len=longest)), "it reads what is new all the same"
    runner.clock.commit()
    assert runner.drafter.first_pass_only is (asked == 0)
    (record,) = StageReader(tmp_path / "ring").read()
    assert (record["asked"], record["way"], record["tokens"]) == (asked, 1, 8)
