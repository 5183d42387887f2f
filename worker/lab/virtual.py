"""Imagined devices: worker classes whose models take the time that a profile says, and compute nothing.

The rest is real: the front end, the engine process and its scheduler, vLLM's model runner with its batches and block
tables, the executor, the link, the queue, the metrics. One process stands for all devices of the target. A tiny model
is loaded, for its vocabulary and its KV cache.

What the target "says" is a function of the prompt and the position alone, so every mode gives the same texts. Whether a
draft is right is one, too: at position j of the drafts with the profile's probability. The verifier compares, as it
does with real drafts: one that went astray is a rejected one.

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
from worker.minedraft.link import REJECTED
from worker.minedraft.ranks_v1 import DrafterWorker, VerifierWorker
from worker.minedraft.runner_v1 import DrafterRunner, VerifierRunner

#: Ids of the tiny vocabulary that say something: none ends a text, none is half a character.
FIRST_ID, LAST_ID = 258, 511

Numbers = NDArray[np.uint64]


def mixed(numbers: Numbers) -> Numbers:
    """Each number's own random one (the finalizer of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        bits = numbers * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    return bits


def target_ids(seeds: Numbers, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the target says.

    Args:
        seeds: [requests] one for each prompt.
        positions: [requests, n] places in the text, prompt included, from 0.

    Returns:
        [requests, n] ids.
    """
    random = mixed(mixed(seeds)[:, None] + positions.astype(np.uint64))
    ids: NDArray[np.int64] = FIRST_ID + (random % np.uint64(LAST_ID - FIRST_ID + 1)).astype(np.int64)
    return ids


def draft_ids(seeds: Numbers, positions: NDArray[np.int64], acceptance: NDArray[np.float64]) -> NDArray[np.int64]:
    """What the draft model says: the target's id, or the one after it.

    A place is drafted again only after a draft before it was rejected, so each place counts once, whatever the mode.

    Args:
        seeds: [requests] one for each prompt.
        positions: [requests, drafts] places in the text, prompt included, from 0.
        acceptance: [drafts] how often the draft there is right.
    """
    right = target_ids(seeds, positions)
    random = mixed(mixed(seeds + np.uint64(1))[:, None] + positions.astype(np.uint64))
    wrong = random.astype(np.float64) / 2.0**64 >= acceptance
    ids: NDArray[np.int64] = np.where(wrong, FIRST_ID + (right + 1 - FIRST_ID) % (LAST_ID - FIRST_ID + 1), right)
    return ids


def accepted(drafts: NDArray[np.int64], target: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[requests] how many drafts, from the first on, are what the target says.

    Args:
        drafts: [requests, n] drafted ids, of which the first `counts` of each row are meant.
        target: [requests, n] the target's ids for the same places.
        counts: [requests]
    """
    same = (drafts == target) & (np.arange(drafts.shape[1]) < counts[:, None])
    result: NDArray[np.int64] = np.cumprod(same, axis=1).sum(axis=1)
    return result


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

    def sizes(self, drafts: int) -> dict[str, int]:
        """The batch, as a profile wants it: mean context, and the tokens that are not verified ones."""
        requests, tokens = self.input_batch.num_reqs, self.scheduled.total_num_scheduled_tokens
        context = int(self.input_batch.num_computed_tokens_cpu[:requests].mean())
        return {"requests": requests, "context": context, "prefill": tokens - requests * (drafts + 1)}


class VirtualTarget(_VirtualRunner):
    """A target model that waits."""

    def _model_forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.scheduled is None:  # a warm-up
            return super()._model_forward(input_ids, *args, **kwargs)
        start = time.monotonic()
        drafts = self.scheduled.scheduled_spec_decode_tokens
        most = max(map(len, drafts.values()), default=0)
        _wait(start, self.profile.verify_ms(drafts=most, **self.sizes(most)))
        return torch.zeros(input_ids.shape[0], self.model_config.get_hidden_size(), dtype=self.dtype)

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> SamplerOutput:
        del logits, spec_decode_metadata
        first, counts = self.places()
        width = int(counts.max(initial=0)) + 1
        ids = target_ids(self.seeds(), first[:, None] + np.arange(width))
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
        """[requests, drafts] int32 for what follows the sampled ids."""
        start = time.monotonic()
        count = self.num_spec_tokens
        first = self.places()[0]
        following = first + (sampled_token_ids != REJECTED).sum(dim=1).numpy()
        acceptance = np.array([self.profile.accepted_at(position) for position in range(count)])
        ids = draft_ids(self.seeds(), following[:, None] + np.arange(count), acceptance)
        _wait(start, self.profile.draft_ms(drafts=count, **self.sizes(count)))
        return torch.from_numpy(ids.astype(np.int32))


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


class VirtualDrafterWorker(DrafterWorker):
    """The drafter's device."""

    runner_class = VirtualDrafterRunner


def _wait(start: float, ms: float) -> None:
    """Return `ms` after `start`; sleeping, not spinning: other processes of this machine have work to do."""
    left = start + ms / 1000 - time.monotonic()
    if left > 0:
        time.sleep(left)
