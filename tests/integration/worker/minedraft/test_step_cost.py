"""What two batches cost beside the models: the time that our own code takes in each step."""

import statistics
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from integration.worker.minedraft.imagined_engine import DRAFTS, ImaginedEngine, config_of
from torch import Tensor
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from worker.minedraft.lanes import DrafterLane, VerifierLane
from worker.minedraft.scheduler import TwoBatchScheduler
from worker.minedraft.stages import Stage, StageClock

REQUESTS = 256
CALLS = 120
#: What a step may cost, beside a verify pass of 10-30 ms on a GPU and more on a CPU (milliseconds).
MOST_MS = 2.0


class ReadyLink:
    """A link on which every message is there already."""

    def __init__(self) -> None:
        self._sampled = torch.full((REQUESTS, DRAFTS + 1), 7, dtype=torch.int32)
        self._drafts = torch.full((REQUESTS, DRAFTS), 7, dtype=torch.int32)

    def send_sampled(self, sampled: Tensor) -> None:
        pass

    def expect_sampled(self, requests: int) -> None:
        pass

    def recv_sampled(self, requests: int) -> Tensor:
        return self._sampled[:requests]

    def send_drafts(self, drafts: Tensor) -> None:
        pass

    def expect_drafts(self, requests: int) -> None:
        pass

    def recv_drafts(self, requests: int) -> Tensor:
        return self._drafts[:requests]

    def close(self) -> None:
        pass


def full(scheduler_class: type[Scheduler], config: Any, requests: int) -> ImaginedEngine:
    """An engine in which so many requests are decoding, each with a few hundred tokens."""
    engine = ImaginedEngine(scheduler_class, config)
    for number in range(requests):
        engine.add(f"r{number}", 300, tokens=10_000)
    while len(engine.scheduler.running) < requests or any(r.is_prefill_chunk for r in engine.scheduler.running):
        engine.step()
    return engine


def test_our_own_work_in_a_step_takes_less_than_2_ms(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    half = REQUESTS // 2
    ours = full(TwoBatchScheduler, config_of(tiny_pair, max_num_seqs=REQUESTS, blocks=10_000), REQUESTS)
    # vLLM's own scheduler with the same step to make: as many requests as one of our batches, each with drafts.
    plain = full(Drafted, config_of(tiny_pair, max_num_seqs=half, blocks=10_000), half)
    for _ in range(CALLS):  # in turns: whatever else this machine does slows both down
        for engine in (ours, plain):
            step = engine.step()
            assert len(step.scheduled_spec_decode_tokens) == len(step.num_scheduled_tokens) == half
    scheduling_ms, plain_ms = (statistics.median(engine.schedule_ms[-CALLS:]) for engine in (ours, plain))

    verifying_ms, drafting_ms = lanes_ms(ours.calls[-CALLS:], tmp_path)
    print(
        f"\n{REQUESTS} requests, {half} a step, medians: scheduling {scheduling_ms:.2f} ms "
        f"(vLLM's own {plain_ms:.2f} ms), verifier's lane {verifying_ms:.2f} ms, drafter's lane {drafting_ms:.2f} ms"
    )
    assert scheduling_ms - plain_ms + verifying_ms + drafting_ms < MOST_MS


class Drafted(Scheduler):  # type: ignore[misc]
    """vLLM's own, with drafts for each request as its own drafter would leave them."""

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        for request in self.running:
            if not request.is_prefill_chunk:
                request.spec_token_ids = [1] * DRAFTS
        return super().schedule(throttle_prefills)


def lanes_ms(calls: list[SchedulerOutput], folder: Path) -> tuple[float, float]:
    """The median time that a verifier's and the drafter's lane take for a call, with a clock that writes."""
    link, clock = ReadyLink(), StageClock(folder / "ring")
    verifier, drafter = VerifierLane(link, clock, sends=True), DrafterLane(link, clock)
    sampled = torch.full((REQUESTS // 2, DRAFTS + 1), 7, dtype=torch.int32)
    times: tuple[list[int], list[int]] = ([], [])
    for call in calls:
        verified = deepcopy(call)
        start = time.perf_counter_ns()
        verifier.begin(verified)
        for stage in (Stage.FORWARD, Stage.SAMPLE):
            clock.start(stage)
            clock.stop(stage)
        verifier.sampled(verified, sampled)
        clock.commit()
        times[0].append(time.perf_counter_ns() - start)

        drafted = deepcopy(call)
        start = time.perf_counter_ns()
        drafter.begin(drafted)
        drafter.sampled(drafted)
        clock.start(Stage.DRAFT)
        clock.stop(Stage.DRAFT)
        drafter.drafted(drafted, sampled[:, :DRAFTS])
        clock.commit()
        times[1].append(time.perf_counter_ns() - start)
    return statistics.median(times[0]) / 1e6, statistics.median(times[1]) / 1e6
