"""Which link a rank on the V2 runner gets, and when its runner hears of it."""

from pathlib import Path
from types import SimpleNamespace as Thing
from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu_worker import Worker

from worker.minedraft import config, ranks_v2
from worker.minedraft.config import TwoBatchConfig
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.ranks_v2 import DrafterWorker, PipelineWorker, VerifierWorker
from worker.minedraft.relay import FirstVerifier
from worker.minedraft.stages import StageClock

CPU = torch.device("cpu")


def rank(made: type[PipelineWorker], **fields: Any) -> Any:
    """One that vLLM has not made."""
    it: Any = made.__new__(made)
    it.vllm_config = Thing(speculative_config=Thing(num_speculative_tokens=3))
    it.model_runner = Thing(clock=StageClock(None), max_num_reqs=8, pp_handler=None)
    it.device, it.rank = CPU, 0
    for name, value in fields.items():
        setattr(it, name, value)
    return it


@pytest.fixture(params=["nccl", "host"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoBatchConfig:
    made = TwoBatchConfig(str(tmp_path), 1, link=request.param)
    monkeypatch.setattr(config, "read", lambda: made)
    return made


@pytest.mark.parametrize("made", [VerifierWorker, DrafterWorker])
def test_a_rank_has_the_link_that_the_settings_name(
    made: type[PipelineWorker], settings: TwoBatchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    nccl, host = object(), Thing(close=lambda: None)
    for name in ("NcclVerifier", "NcclDrafter"):
        monkeypatch.setattr(ranks_v2, name, Thing(connect=lambda *given, of=name: asked.append((of, given)) or nccl))
    monkeypatch.setattr(
        ranks_v2, "HostLink", Thing(connect=lambda *given, **more: asked.append(("host", more)) or host)
    )
    it = rank(made)
    lane = it.make_lane("there", 0)
    assert isinstance(lane, VerifierPipeline if made is VerifierWorker else DrafterPipeline)
    if settings.link == "nccl":
        name, *given = {
            VerifierWorker: ("NcclVerifier", "there", 0, 1, 3),
            DrafterWorker: ("NcclDrafter", "there", 1, 3),
        }[made]
        assert asked == [(name, (*given, CPU))]
        assert lane._link is nccl
    else:
        assert asked == [("host", {"within": None, "device": CPU})]
        end = lane._link
        assert end is host or isinstance(end, FirstVerifier)


@pytest.mark.parametrize("made", [VerifierWorker, DrafterWorker])
def test_the_runner_has_a_pipeline_once_warm_up_is_over(
    made: type[PipelineWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = object()
    it = rank(made, lane=lane)

    def warm_up(self: Any) -> str:
        assert self.model_runner.pp_handler is None, "warm-up drives the rank with invented requests"
        return "times"

    monkeypatch.setattr(Worker, "compile_or_warm_up_model", warm_up)
    assert it.compile_or_warm_up_model() == "times"
    assert it.model_runner.pp_handler is lane
