"""A rank of `ar` or `sd` has what the two-batch engine's runner asks of one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from worker.lab.solo import SoloLane, SoloRunner
from worker.minedraft.link import REJECTED
from worker.minedraft.platform import RankRunner


class Clock:
    """Keeps what is counted, and no times."""

    def __init__(self) -> None:
        self.counted: list[tuple[list[int], list[int]]] = []

    def drafts(self, scheduled: Any, accepted: Any) -> None:
        self.counted.append((np.asarray(scheduled).tolist(), np.asarray(accepted).tolist()))

    def start(self, stage: Any) -> None: ...

    def stop(self, stage: Any) -> None: ...


class Runner(SoloRunner):
    """Between a step's beginning and its sampling, without a draft model, as in `ar`."""

    def __init__(self, clock: Any, step: Any) -> None:
        self.clock, self.step, self.lane = clock, step, SoloLane(clock)
        self.input_batch = SimpleNamespace(req_id_to_index={"a": 1, "b": 0})
        self.speculative_config = None


def test_a_step_is_counted_in_the_order_of_its_requests_with_or_without_a_draft_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled = torch.tensor([[5, 6, REJECTED], [7, REJECTED, REJECTED]])
    monkeypatch.setattr(RankRunner, "_sample", lambda _: SimpleNamespace(sampled_token_ids=sampled), raising=False)
    clock = Clock()
    step = SimpleNamespace(num_scheduled_tokens={"a": 1, "b": 3}, scheduled_spec_decode_tokens={"b": [6, 9]})
    Runner(clock, step)._sample()
    assert clock.counted == [([0, 2], [0, 1])]
