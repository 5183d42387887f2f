"""vLLM's engine core without processes and without models: a real scheduler, and a worker that makes answers up."""

import random
import time
from collections import deque
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from worker.engine import vllm_args
from worker.engine.vllm_args import VllmOptions
from worker.minedraft.checks import check_config
from worker.minedraft.classes import Ranks
from worker.minedraft.scheduler import TwoBatchScheduler

DRAFTS = 3
BLOCK = 32
#: What the scheduler writes for drafts that it does not see.
PLACEHOLDERS = [-1] * DRAFTS


def config_of(pair: tuple[Path, Path], *, max_num_seqs: int = 8, blocks: int = 1000, engine_args: str = "") -> Any:
    """The `VllmConfig` of the two-batch engine as it is in the engine process.

    Args:
        pair: the target and the draft model.
        max_num_seqs: requests that run at once.
        blocks: of the KV cache, of `BLOCK` tokens each.
        engine_args: more flags.
    """
    options = VllmOptions(
        model=str(pair[0]),
        served_model_name="target",
        mode="psd",
        draft_model=str(pair[1]),
        num_speculative_tokens=DRAFTS,
        max_num_seqs=max_num_seqs,
        engine_args=f"--block-size {BLOCK} {engine_args}",
    )
    engine_args_of_vllm = AsyncEngineArgs.from_cli_args(vllm_args.parse(options, cpu=True))
    config = engine_args_of_vllm.create_engine_config(UsageContext.OPENAI_BATCH_RUNNER)
    check_config(config, Ranks())
    config.scheduler_config.async_scheduling = True  # as the executor leaves it
    config.cache_config.num_gpu_blocks = blocks
    return config


class ImaginedEngine:
    """Drives a scheduler as `EngineCore.step_with_batch_queue` does, with two calls under way.

    Args:
        scheduler_class: the scheduler.
        config: a `VllmConfig`, of which this is the only engine.
        seed: decides how many drafts are accepted.

    Attributes:
        calls: what was scheduled, as it was.
        sampling: for each call, the requests for which a token is sampled: those that have read their prompt.
        generated: tokens of each request so far.
        schedule_ms: how long each call took to schedule (milliseconds).
    """

    def __init__(self, scheduler_class: type[Scheduler], config: Any, seed: int = 0) -> None:
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=32, dtype=torch.float32)
        self.scheduler = scheduler_class(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(config.cache_config.num_gpu_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            log_stats=False,
        )
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK, sha256)
        self._chance = random.Random(seed)
        self._under_way: deque[tuple[SchedulerOutput, set[str]]] = deque()
        self.calls: list[SchedulerOutput] = []
        self.sampling: list[set[str]] = []
        self.generated: dict[str, int] = {}
        self.schedule_ms: list[float] = []

    def add(self, name: str, prompt: list[int] | int = 20, *, tokens: int = 40, structured: bool = False) -> Request:
        """A request comes, with a prompt of its own when only a length is given."""
        prompt = [self._chance.randrange(500) for _ in range(prompt)] if isinstance(prompt, int) else prompt
        wanted = StructuredOutputsParams(choice=["yes", "no"]) if structured else None
        asked = SamplingParams(max_tokens=tokens, ignore_eos=True, structured_outputs=wanted)
        request = Request(name, prompt, asked, None, block_hasher=self._hasher)
        if structured:  # with a grammar that takes everything
            assert request.structured_output_request is not None
            request.status = RequestStatus.WAITING
            request.structured_output_request.grammar = AnyTokens()
        self.generated[name] = 0
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        """A request's client is gone."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> SchedulerOutput:
        """Make the next call, and take the result of the one before when two are under way, or when it has to be in."""
        while self._under_way and not self.scheduler.has_requests():
            self._finish(*self._under_way.popleft())
        start = time.perf_counter_ns()
        output = self.scheduler.schedule()
        self.schedule_ms.append((time.perf_counter_ns() - start) / 1e6)
        assert output.total_num_scheduled_tokens == sum(output.num_scheduled_tokens.values())
        assert self._under_way or not output.pending_structured_output_tokens, "vLLM would wait for a call before it"
        running = {request.request_id: request for request in self.scheduler.running}
        sampling = {name for name in output.num_scheduled_tokens if not running[name].is_prefill_chunk}
        self.calls.append(deepcopy(output))
        self.sampling.append(sampling)
        self._under_way.append((output, sampling))
        if len(self._under_way) == 2:
            self._finish(*self._under_way.popleft())
        return output

    def run(self) -> None:
        """Make calls until all requests have ended."""
        while self.scheduler.has_requests() or self._under_way:
            if self.scheduler.has_requests():
                self.step()
            else:
                self._finish(*self._under_way.popleft())
            assert len(self.calls) < 10_000, "no end in sight"

    def _finish(self, output: SchedulerOutput, sampling: set[str]) -> None:
        names = list(output.num_scheduled_tokens)
        drafts = output.scheduled_spec_decode_tokens
        sampled = [
            [7] * (1 + self._chance.randint(0, len(drafts.get(name, ())))) if name in sampling else [] for name in names
        ]
        result = ModelRunnerOutput(names, {name: place for place, name in enumerate(names)}, sampled)
        for made in self.scheduler.update_from_output(output, result).values():
            for each in made.outputs:
                self.generated[each.request_id] += len(each.new_token_ids)


class AnyTokens:
    """A grammar that accepts every token."""

    def accept_tokens(self, *_: Any) -> bool:
        return True

    def is_terminated(self) -> bool:
        return False


def two_batches(config: Any, seed: int = 0) -> ImaginedEngine:
    """An engine with our scheduler."""
    return ImaginedEngine(TwoBatchScheduler, config, seed)
