"""Imagined devices: worker classes whose models take the time that a profile says, and compute nothing.

The rest is real: the front end, the engine process and its scheduler, vLLM's model runner with its batches and block
tables, the executor, the link, the queue, the metrics. One process stands for all devices of the target. A tiny model
is loaded, for its vocabulary and its KV cache.

What both models "say" is in `text.py`: a function of the prompt and the position alone. The verifier compares drafts,
as it does with real ones: one that went astray is a rejected one. It waits as long as the tokens take that it verifies,
the drafter as long as those that are asked of it.

Named in `modes.py`; the profile is in the environment.
"""

import os
import time
import zlib
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.v1.outputs import SamplerOutput

from worker.engine import vllm_plugin
from worker.engine.vllm_cpu_worker import CpuRunner
from worker.lab.modes import MARK, PROFILE
from worker.lab.profile import Profile
from worker.lab.solo import SoloRunner, SoloWorker
from worker.lab.text import Chances, Numbers, accepted, chances, draft_ids, target_ids
from worker.minedraft.lanes import way_of
from worker.minedraft.link import REJECTED
from worker.minedraft.ranks_v1 import DrafterWorker, VerifierWorker
from worker.minedraft.runner_v1 import DrafterRunner, VerifierRunner
from worker.strategies.seam import Way


class _VirtualRunner(CpuRunner):
    """What both models' runners know: the profile, each request's seed, and which places a step is about."""

    scheduled: Any = None

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin a step."""
        self.scheduled = scheduler_output
        return super().execute_model(scheduler_output, *args, **kwargs)

    @cached_property
    def profile(self) -> Profile:
        """Of the devices; an engine that asks for it is marked."""
        if folder := vllm_plugin.engine_folder():
            (folder / MARK).touch()
        return Profile.from_json(os.environ[PROFILE])

    @cached_property
    def _seeds(self) -> dict[str, int]:
        return {}

    def seeds(self) -> Numbers:
        """[requests] of the batch, in this runner's order."""
        known, requests = self._seeds, self.input_batch.req_ids
        if len(known) > 4 * len(requests) + 1024:
            known.clear()
        for request in requests:
            if request not in known:
                prompt = self.requests[request].prompt_token_ids
                known[request] = zlib.crc32(np.asarray(prompt, np.int64).tobytes())
        return np.array([known[request] for request in requests], np.uint64)

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[requests] the place of the first id that the step samples, and how many drafts it verifies."""
        step, batch = self.scheduled, self.input_batch
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs].astype(np.int64)
        scheduled = np.array([step.num_scheduled_tokens[request] for request in batch.req_ids], np.int64)
        drafts = step.scheduled_spec_decode_tokens
        counts = np.array([len(drafts.get(request, ())) for request in batch.req_ids], np.int64)
        return computed + scheduled - counts, counts

    def sizes(self) -> dict[str, int]:
        """The pass, as a profile wants it: requests, all their tokens, and the mean context."""
        requests = self.input_batch.num_reqs
        context = int(self.input_batch.num_computed_tokens_cpu[:requests].mean())
        return {"requests": requests, "tokens": self.scheduled.total_num_scheduled_tokens, "context": context}


class VirtualTarget(_VirtualRunner):
    """A target model that waits."""

    def _model_forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.scheduled is None:  # a warm-up
            return super()._model_forward(input_ids, *args, **kwargs)
        start, sizes = time.monotonic(), self.sizes()
        _wait(start, self.profile.target.ms(sizes["tokens"], sizes["requests"] * sizes["context"]))
        return torch.zeros(input_ids.shape[0], self.model_config.get_hidden_size(), dtype=self.dtype)

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> SamplerOutput:
        del logits, spec_decode_metadata
        first, counts = self.places()
        width = int(counts.max(initial=0)) + 1
        ids = target_ids(self.seeds(), first[:, None] + np.arange(width), self.profile.template)
        drafts = np.full((len(first), width - 1), REJECTED, np.int64)
        for row, request in enumerate(self.input_batch.req_ids):
            if count := counts[row]:
                drafts[row, :count] = self.scheduled.scheduled_spec_decode_tokens[request]
        lengths = accepted(drafts, ids[:, :-1], counts) + 1
        ids[np.arange(width) >= lengths[:, None]] = REJECTED
        return SamplerOutput(torch.from_numpy(ids.astype(np.int32)), logprobs_tensors=None)


class VirtualDrafts(_VirtualRunner):
    """A draft model that waits."""

    def propose_draft_token_ids(self, scheduler_output: Any, sampled_token_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        """[requests, drafts] int32 for what follows the sampled ids, or, ahead, the drafts that are being verified."""
        start, profile = time.monotonic(), self.profile
        count = scheduler_output.num_spec_tokens_to_schedule
        first, verified = self.places()
        ahead = way_of(scheduler_output) is Way.AHEAD
        following = first + (verified if ahead else (sampled_token_ids != REJECTED).sum(dim=1).numpy())
        positions = following[:, None] + np.arange(count)
        acceptance = np.array([profile.accepted_at(position) for position in range(count)])
        likely = chances(self.seeds(), positions, acceptance, profile.spread)
        self.tell(likely)
        ids = draft_ids(self.seeds(), positions, likely, profile.template)
        _wait(start, profile.passes_ms(drafts=count, **self.sizes()))
        return torch.from_numpy(ids.astype(np.int32))

    def tell(self, likely: Chances) -> None:
        """Say how sure this model is of what it drafts: [requests, drafts], in the order of this runner's batch."""


class VirtualSoloRunner(SoloRunner, VirtualTarget, VirtualDrafts):
    """Both models, one after the other."""


class VirtualSoloWorker(SoloWorker):
    """Devices that do both."""

    runner_class = VirtualSoloRunner


class VirtualVerifierRunner(VerifierRunner, VirtualTarget):
    """The target model alone."""


class VirtualVerifierWorker(VerifierWorker):
    """The target's devices."""

    runner_class = VirtualVerifierRunner


class VirtualDrafterRunner(DrafterRunner, VirtualDrafts):
    """The draft model alone."""

    def tell(self, likely: Chances) -> None:
        """In place of the proposer that a real model has."""
        self.drafter.noted = list(torch.from_numpy(likely).unbind(dim=1))


class VirtualDrafterWorker(DrafterWorker):
    """The drafter's device."""

    runner_class = VirtualDrafterRunner


def _wait(start: float, ms: float) -> None:
    """Return `ms` after `start`; sleeping, not spinning: other processes of this machine have work to do."""
    left = start + ms / 1000 - time.monotonic()
    if left > 0:
        time.sleep(left)
