"""What of vLLM's V2 runner is replaced, and when; that all of it works together `tests/v2_on_cpu` sees."""

from types import SimpleNamespace as Thing
from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator, DraftModelSpeculator

from worker.minedraft import runner_v2
from worker.minedraft.pipeline import DrafterPipeline
from worker.minedraft.runner_v2 import DrafterRunner, PipelineRunner, RemoteDrafts, VerifierRunner
from worker.minedraft.sampling_v2 import PlaceSampler
from worker.minedraft.stages import StageClock
from worker.minedraft.stub_target import StubTarget

CPU = torch.device("cpu")


def runner(made: type[PipelineRunner], **fields: Any) -> Any:
    """One that vLLM has not made."""
    it: Any = made.__new__(made)
    it.device, it.pp_handler, it.clock, it.max_num_reqs, it.num_speculative_steps = CPU, None, StageClock(None), 8, 3
    it.speculative_config = Thing(
        num_speculative_tokens=3, enable_adaptive_verification=False, rejection_sample_method="standard"
    )
    for name, value in fields.items():
        setattr(it, name, value)
    return it


def test_a_verifiers_speculator_drafts_zeros_and_has_no_model() -> None:
    speculator = RemoteDrafts(8, 3, CPU)
    assert isinstance(speculator, BaseSpeculator)
    assert not isinstance(speculator, DraftModelSpeculator), "vLLM would load weights for it"
    drafts = speculator.propose(Thing(num_reqs=2), "metadata", num_speculative_tokens=3)
    assert drafts.tolist() == [[0] * 3] * 2
    assert drafts.dtype == torch.int64
    drafts[:, 1:] = -1  # as vLLM does where a call asks for one
    assert speculator.propose(Thing(num_reqs=2)).tolist() == [[0] * 3] * 2


def test_a_verifier_loads_no_draft_model_and_samples_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_model(self: Any, **given: Any) -> None:
        assert isinstance(self.speculator, RemoteDrafts), "vLLM loads the weights of the speculator that is there"
        assert given == {"load_dummy_weights": True}
        self.sampler = object()
        self.rejection_sampler = RejectionSampler(self.sampler, self.speculative_config, CPU)

    monkeypatch.setattr(GPUModelRunner, "load_model", load_model)
    it = runner(VerifierRunner)
    it.load_model(load_dummy_weights=True)
    assert type(it.rejection_sampler) is PlaceSampler
    assert it.rejection_sampler.sampler is it.sampler


def test_a_drafter_loads_no_target_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(GPUModelRunner, "load_model", lambda self, **given: loaded.append(given["model"]))
    it = runner(DrafterRunner, dtype=torch.bfloat16, model_config=Thing(get_hidden_size=lambda: 16))
    it.load_model(load_dummy_weights=False)
    (stub,) = loaded
    assert isinstance(stub, StubTarget)
    assert not list(stub.parameters())
    output = stub(torch.zeros(5, dtype=torch.int32), positions=None)
    assert (output.shape, output.dtype) == ((5, 16), torch.bfloat16)


@pytest.mark.parametrize("made", [VerifierRunner, DrafterRunner])
def test_nothing_is_exchanged_before_warm_up_is_over(
    made: type[PipelineRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(GPUModelRunner, "execute_model", lambda self, step, **_: done.append("execute"))
    monkeypatch.setattr(GPUModelRunner, "sample_tokens", lambda self, grammar: done.append("sample"))
    it = runner(made, req_states=Thing(req_id_to_index="slots"), speculator=Thing())
    it.execute_model("invented")
    it.sample_tokens(None)
    assert done == ["execute", "sample"]
    it.pp_handler = Thing(begin=lambda step, slots: done.append(f"begin {step.name} {slots}"))
    it.execute_model(Thing(name="real", num_spec_tokens_to_schedule=2))
    assert done[2:] == ["begin real slots", "execute"]


@pytest.mark.parametrize(("asked", "passes"), [(0, 1), (1, 1), (3, 3)])
def test_a_drafter_makes_as_many_passes_as_tokens_are_asked_for(
    asked: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPUModelRunner, "execute_model", lambda self, step, **_: None)
    it = runner(DrafterRunner, req_states=Thing(req_id_to_index={}), speculator=Thing(num_speculative_steps=3))
    it.pp_handler = Thing(begin=lambda step, slots: None)
    it.execute_model(Thing(num_spec_tokens_to_schedule=asked))
    assert it.speculator.num_speculative_steps == passes


def test_what_a_drafter_samples_before_there_are_messages() -> None:
    """Warm-up asks for a sample of each row."""
    output, num_sampled, num_rejected = runner(DrafterRunner).sample(None, Thing(num_reqs=3), None)
    assert output.sampled_token_ids.shape == (3, 4)  # as wide as real ones: kernels are compiled for such
    assert num_sampled.tolist() == [1] * 3
    assert num_rejected.tolist() == [0] * 3


def test_what_a_drafter_samples_is_what_the_verifiers_sampled() -> None:
    packet = torch.tensor([[5, 6, 7, 8, 4, 0], [9, 0, 0, 0, 1, 3]], dtype=torch.int32)
    it = runner(DrafterRunner)
    it.pp_handler = DrafterPipeline(Thing(recv_sampled=lambda rows: packet[:rows]), it.clock, 3)  # type: ignore[arg-type]
    output, num_sampled, num_rejected = it.sample(None, Thing(num_reqs=2), grammar_output="is the verifiers' business")
    assert output.sampled_token_ids.tolist() == [[5, 6, 7, 8], [9, 0, 0, 0]]
    assert output.num_sampled is num_sampled
    assert num_sampled.tolist() == [4, 1]
    assert num_rejected.tolist() == [0, 3]


def test_a_drafter_is_not_told_what_rows_want_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM would ask the stub for logits."""
    monkeypatch.setattr(GPUModelRunner, "add_requests", lambda self, step: None)
    new = Thing(sampling_params=SamplingParams(temperature=1, logprobs=3, prompt_logprobs=2, presence_penalty=1))
    runner(DrafterRunner).add_requests(Thing(scheduled_new_reqs=[new]))
    told = new.sampling_params
    assert (told.temperature, told.logprobs, told.prompt_logprobs, told.presence_penalty) == (0, None, None, 0)


@pytest.mark.parametrize(("taken", "profile_only"), [(1000, False), (1000, True), (0, False)])
def test_a_drafter_captures_its_speculators_graphs(
    taken: int, profile_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's own returns early where the target has nothing to capture, and then never captures the speculator.

    Where nothing was captured, what is in the workspace may still grow.
    """
    done = []
    free = iter([5000, 5000 - taken])
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (next(free), 8000))
    monkeypatch.setattr(runner_v2, "lock_workspace", lambda: done.append("lock"))
    it = runner(DrafterRunner, speculator=Thing(capture=lambda: done.append("capture")))
    assert it.capture_model(profile_only=profile_only) == taken
    assert done == (["capture", "lock"] if taken and not profile_only else ["capture"])
