"""What the verifiers' and the drafter's worker have in common: a name, a clock, and a link that opens late."""

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from vllm.v1.core.sched.output import SchedulerOutput

from worker.minedraft import config, link, names
from worker.minedraft.input_batches import InputBatches
from worker.minedraft.lanes import DrafterLane, VerifierLane
from worker.minedraft.platform import RankLink, RankWorker
from worker.minedraft.runner_v1 import TwoBatchRunner
from worker.minedraft.stages import StageClock, ring_path

P = ParamSpec("P")
T = TypeVar("T")

#: How long a rank that lost its peer waits to be ended with the engine before it ends by itself (seconds).
_PEER_GRACE_S = 1.0
#: How long ranks that are at work already may take to meet: rows wait.
JOIN_WITHIN = timedelta(seconds=10)

log = logging.getLogger("vllm.minedraft.rank")  # below vLLM's logger, whose handlers leave errors for the worker


def fatal(step: Callable[P, T]) -> Callable[P, T]:
    """End the process when `step` fails.

    Nobody reads the drafter's replies, and of a verifier vLLM asks for a sample even after the forward pass has failed;
    but the death of a process is noticed at once.
    """

    @wraps(step)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return step(*args, **kwargs)
        except Exception as error:
            if isinstance(error, link.LinkError):
                time.sleep(_PEER_GRACE_S)  # the first error to be told should be the peer's own
            log.exception("a step failed:")
            logging.shutdown()
            os._exit(1)

    return wrapped


class LaneWorker(RankWorker):
    """A worker that takes part in the exchange of drafts."""

    model_runner: TwoBatchRunner
    name: str
    link_rank: int
    lane: VerifierLane | DrafterLane | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model under this rank's own name: vLLM has just given it another one."""
        names.call_this_process(self.name)
        rank = self.name.removeprefix("minedraft::")
        self.model_runner.clock = StageClock(ring_path(Path(config.read().folder), rank))
        super().load_model(*args, **kwargs)

    @fatal  # a rank that fails before it has met the others would leave them waiting
    def meet(self, address: str) -> None:
        """Meet the other ranks, while the engine starts.

        Args:
            address: where.
        """
        self.lane = self.make_lane(address, 0)

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, which drives the overridden methods with invented requests; from then on, exchange drafts."""
        result = super().compile_or_warm_up_model()
        self.model_runner.batches = InputBatches(self.model_runner)
        self.model_runner.lane = self.lane
        return result

    def make_lane(self, address: str, last: int) -> VerifierLane | DrafterLane:
        """This rank's part in the protocol.

        Args:
            address: where the ranks meet.
            last: the number of the call before the first that it takes part in.
        """
        raise NotImplementedError

    @property
    def drafts(self) -> int:
        """Drafted tokens a request and step."""
        return int(self.vllm_config.speculative_config.num_speculative_tokens)

    def connect(self, address: str, within: timedelta | None = None) -> RankLink:
        """This rank's end of the link between the first verifier and the drafter.

        Args:
            address: where to meet.
            within: how long that may take; None: as long as a message.

        Raises:
            LinkError: the other one did not come in time.
        """
        return RankLink.connect(address, self.link_rank, self.drafts, config.read().deadline, within)

    @fatal
    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """Begin a call: requests and block tables, drafts, the forward pass."""
        self.model_runner.begin(scheduler_output)
        return super().execute_model(scheduler_output)

    @fatal
    def sample_tokens(self, grammar_output: Any) -> Any:
        """End a call: the verifiers sample, the drafter drafts."""
        return super().sample_tokens(grammar_output)

    def shutdown(self) -> None:
        """Close the link, and end as vLLM does."""
        if self.lane is not None:
            self.lane.close()
        super().shutdown()
