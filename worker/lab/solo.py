"""A rank that drafts and verifies by itself, or only decodes, with a stage clock: vLLM's own `ar` and `sd`, measured.

Named in `modes.py`; runs in vLLM's processes. A record of `sd` holds the draft that follows the verification, so one
ring has both V and t.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from worker.engine import vllm_plugin
from worker.engine.vllm_cpu_worker import CpuWorker
from worker.minedraft import lanes
from worker.minedraft.engine_clock import EngineClock
from worker.minedraft.runner_v1 import TargetRunner
from worker.minedraft.stages import Stage, StageClock, ring_path, verifier_name


class SoloLane:
    """Records what a verifier's lane does, and exchanges nothing."""

    def __init__(self, clock: StageClock) -> None:
        self._clock = clock
        self._call = 0

    def begin(self, step: lanes.Step) -> None:
        """Begin a call."""
        self._call += 1
        if step.num_scheduled_tokens:
            self._clock.begin(self._call)
            lanes.count(step, self._clock)
            self._clock.start(Stage.PREPARE)

    def sampled(self, step: lanes.Step, sampled: Tensor, drawn: Sequence[str] = ()) -> None:
        """Count what was accepted of [requests, up to drafts + 1] sampled ids, in the step's order."""
        del drawn  # nobody else is told
        lanes.count_drafts(step, sampled, self._clock)


class SoloRunner(TargetRunner):
    """vLLM's runner, which drafts after it has sampled, or does not draft."""

    def drawn(self) -> list[str]:
        """None: nothing is exchanged."""
        return []

    def propose_draft_token_ids(self, *args: Any, **kwargs: Any) -> Any:
        """Draft."""
        self.clock.start(Stage.DRAFT)
        drafts = super().propose_draft_token_ids(*args, **kwargs)
        self.clock.stop(Stage.DRAFT)
        return drafts


class SoloWorker(CpuWorker):
    """vLLM's worker, with a clock once warm-up is over."""

    runner_class = SoloRunner
    model_runner: SoloRunner

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, then start the clock; outside an engine of ours nothing is kept."""
        result = super().compile_or_warm_up_model()
        folder = vllm_plugin.engine_folder()
        clock = StageClock(None if folder is None else ring_path(folder, verifier_name(self.rank)))
        self.model_runner.clock, self.model_runner.lane = clock, SoloLane(clock)
        return result

    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """Begin a call."""
        self.model_runner.begin(scheduler_output)
        return super().execute_model(scheduler_output)


class ClockedScheduler(Scheduler):  # type: ignore[misc] # vLLM's types are not read
    """vLLM's, with the clock that the two-batch engine's scheduler has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = EngineClock(vllm_plugin.engine_folder())

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule the next call."""
        with self._clock.scheduling():
            return super().schedule(throttle_prefills)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a result."""
        with self._clock.updating():
            return super().update_from_output(*args, **kwargs)
