"""A rank of the target model. Named by `--worker-cls`; runs in vLLM's worker processes."""

from pathlib import Path
from typing import Any

from worker.minedraft import config, names
from worker.minedraft.lanes import VerifierLane
from worker.minedraft.link import LinkError, VerifierEnd
from worker.minedraft.platform import RankLink
from worker.minedraft.presence import Presence
from worker.minedraft.rank import JOIN_WITHIN, LaneWorker, fatal, log
from worker.minedraft.relay import FirstVerifier, OtherVerifier, Relay
from worker.minedraft.runner_v1 import VerifierRunner, draft_nothing


class VerifierWorker(LaneWorker):
    """Checks what the drafter drafted; rank 0 tells it what came of that."""

    runner_class = VerifierRunner
    model_runner: VerifierRunner
    link_rank = RankLink.FIRST
    _relay: Relay | None = None

    def __init__(self, vllm_config: Any, local_rank: int, rank: int, *args: Any, **kwargs: Any) -> None:
        self.name = names.verifier(rank)
        names.call_this_process(self.name)
        draft_nothing(vllm_config)  # this process's own copy
        super().__init__(vllm_config, local_rank, rank, *args, **kwargs)

    def make_lane(self, address: str, last: int) -> VerifierLane:
        """The verifiers' part in the protocol."""
        settings = config.read()
        self._relay = Relay.connect(address, self.rank, settings.verifiers, self.drafts, settings.deadline)
        end = self._end(self.connect(address) if self.rank == 0 else None)
        vocabulary = self.model_config.get_vocab_size()
        return VerifierLane(end, self.model_runner.clock, sends=self.rank == 0, vocabulary=vocabulary)

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, with vLLM's own sampler; from then on, sample exactly."""
        result = super().compile_or_warm_up_model()
        self.model_runner.sample_exactly()
        return result

    @fatal
    def join(self, address: str, last: int) -> None:
        """Go on with another drafter, or without one when it does not come.

        Args:
            address: where to meet it.
            last: the number of the call before the first that it takes part in.
        """
        del last  # this rank has counted, too
        lane = self.lane
        assert isinstance(lane, VerifierLane)
        lane.rejoin(self._end(None))
        if self.rank == 0:
            try:
                lane.rejoin(self._end(self.connect(address, JOIN_WITHIN)))
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
