"""What every rank of a two-batch engine is, on whichever of vLLM's runners: a name, a clock, a link that opens late.

Mix-ins, to stand before one of vLLM's worker classes (`ranks_v1.py`, `ranks_v2.py`).
"""

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.worker.worker_base import WorkerBase

from worker.minedraft import config, names
from worker.minedraft.link import GlooLink, LinkError, VerifierEnd
from worker.minedraft.presence import Presence
from worker.minedraft.relay import FirstVerifier, OtherVerifier, Relay
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
            if isinstance(error, LinkError):
                time.sleep(_PEER_GRACE_S)  # the first error to be told should be the peer's own
            log.exception("a step failed:")
            logging.shutdown()
            os._exit(1)

    return wrapped


class Lane(Protocol):
    """A rank's part in the exchange of drafts: of `lanes.py`, or of `pipeline.py`."""

    def close(self) -> None:
        """Exchange nothing any more."""
        ...


class Rank(WorkerBase):  # type: ignore[misc] # vLLM's types are not read
    """A worker that takes part in the exchange of drafts."""

    name: str
    link_rank: int
    lane: Any = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model under this rank's own name: vLLM has just given it another one."""
        names.call_this_process(self.name)
        rank = self.name.removeprefix("minedraft::")
        self.model_runner.clock = self.make_clock(ring_path(Path(config.read().folder), rank))
        super().load_model(*args, **kwargs)

    @fatal  # a rank that fails before it has met the others would leave them waiting
    def meet(self, address: str) -> None:
        """Meet the other ranks, while the engine starts.

        Args:
            address: where.
        """
        self.lane = self.make_lane(address, 0)

    @fatal
    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """Begin a call: requests and block tables, drafts, the forward pass."""
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

    @property
    def drafts(self) -> int:
        """Drafted tokens a request and step."""
        return int(self.vllm_config.speculative_config.num_speculative_tokens)

    def make_clock(self, path: Path) -> Any:
        """What records this rank's stages, as `StageClock` does."""
        return StageClock(path)

    def make_lane(self, address: str, last: int) -> Lane:
        """This rank's part in the protocol.

        Args:
            address: where the ranks meet.
            last: the number of the call before the first that it takes part in.
        """
        raise NotImplementedError

    def open_lane(self) -> None:
        """From now on the runner exchanges drafts."""
        raise NotImplementedError

    def connect(self, address: str, within: timedelta | None = None) -> Any:
        """This rank's end of the link between the first verifier and the drafter.

        Args:
            address: where to meet.
            within: how long that may take; None: as long as a message.

        Raises:
            LinkError: the other one did not come in time.
        """
        raise NotImplementedError


class VerifierRank(Rank):
    """Checks what the drafter drafted; rank 0 tells it what came of that, and tells the others what it drafted."""

    link_rank = GlooLink.FIRST
    _relay: Relay | None = None

    def __init__(self, vllm_config: Any, local_rank: int, rank: int, *args: Any, **kwargs: Any) -> None:
        self.name = names.verifier(rank)
        names.call_this_process(self.name)
        super().__init__(vllm_config, local_rank, rank, *args, **kwargs)

    def meet_all(self, address: str) -> VerifierEnd:
        """Meet the drafter and the other verifiers: an end that outlives the drafter.

        Args:
            address: where.

        Raises:
            LinkError: they did not all come in time.
        """
        settings = config.read()
        self._relay = Relay.connect(address, self.rank, settings.verifiers, self.drafts, settings.deadline)
        return self._end(self.connect(address) if self.rank == 0 else None)

    @fatal
    def join(self, address: str, last: int) -> None:
        """Go on with another drafter, or without one when it does not come.

        Args:
            address: where to meet it.
            last: the number of the call before the first that it takes part in.
        """
        del last  # this rank has counted, too
        self.lane.rejoin(self._end(None))
        if self.rank == 0:
            try:
                self.lane.rejoin(self._end(self.connect(address, JOIN_WITHIN)))
            except LinkError as error:
                self._lost(error)

    def _end(self, link: VerifierEnd | None) -> VerifierEnd:
        """This rank's end, given the first one's link to the drafter."""
        if self.rank:
            assert self._relay is not None
            return OtherVerifier(self._relay)
        return FirstVerifier(link, self._relay, self.drafts, self._lost)

    def _lost(self, error: LinkError) -> None:
        Presence(Path(config.read().folder)).give_up()
        log.warning("no drafts any more: %s", error)


class DrafterRank(Rank):
    """Drafts for one batch while the verifiers check the other."""

    link_rank = GlooLink.DRAFTER

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        self.name = names.DRAFTER
        names.call_this_process(self.name)
        super().__init__(vllm_config, *args, **kwargs)

    def determine_available_memory(self) -> int:
        """Memory for the draft model's KV cache: what the user gave it, or as much as a verifier has (bytes)."""
        memory = config.read().drafter_kv_cache_bytes
        if memory is not None:
            # Not earlier: vLLM's CPU platform puts VLLM_CPU_KVCACHE_SPACE there when the proposer makes its own config.
            self.cache_config.kv_cache_memory_bytes = memory
        return int(super().determine_available_memory())

    @fatal
    def join(self, address: str, last: int) -> None:
        """Take part in an engine that is at work.

        Args:
            address: where to meet the first verifier.
            last: the number of the call before the first that this rank gets.
        """
        self.lane = self.make_lane(address, last)
        self.open_lane()
