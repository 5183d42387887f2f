"""What is decided of all rows before each call, and of each row's drafts; in the engine process.

Holds the parts of a strategy that decide here (`worker/strategies`), tells them what they may know, and logs what
changes. Which rows are in a call is the scheduler's business (`two_batches.py`).
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.request import RequestStatus

from worker.minedraft.pace import Pace
from worker.strategies import lengths, modes, sources
from worker.strategies.modes.predict import price
from worker.strategies.seam import Choice, Load, Strategy, Way

#: Plain decoding of all rows: what is left without a drafter.
PLAIN = Choice(Way.ONE, 0)
#: Seconds between two lines of the log, at least.
_LOG_S = 1.0
_WHOLE = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)

log = logging.getLogger("vllm.minedraft.conductor")


class Conductor:
    """Decides for an engine.

    Args:
        folder: the engine's; None: nothing is ever measured.
        strategy: what the user asked for.
        drafts: tokens drafted for a row in a call, at most; at least 1.
        ahead: whether rows can be drafted ahead.

    Attributes:
        now: what the call does that was begun last.
        pace: what is measured.
    """

    def __init__(self, folder: Path | None, strategy: Strategy, drafts: int, *, ahead: bool) -> None:
        self.pace = Pace(folder)
        self._drafts = drafts
        self.now = Choice(Way.TWO, drafts)
        pace = self.pace
        self._mode = modes.make(strategy, drafts, pace.costs, pace.acceptance, ahead=ahead, prompts=pace.prompts)
        self._lengths, self._sources = lengths.make(strategy), sources.make(strategy)
        self._next: Choice | None = None
        self._price = 0.0
        self._logged: Choice | None = None
        self._log_due = 0.0

    def next(self, load: Callable[[], Load]) -> Choice:
        """What the next call does: decided when it is first asked for, and the same until the call begins.

        Args:
            load: says what there is to do.
        """
        if self._next is None:
            self.pace.refresh()
            self._next = self._mode.choose(load(), self.now)
        return self._next

    def begin(self, load: Callable[[], Load], rows: int, *, drafting: bool) -> Choice:
        """A call begins; what it does.

        Args:
            load: says what there is to do.
            rows: that run.
            drafting: whether there is a drafter.
        """
        self.now = self.next(load) if drafting else PLAIN
        self._next = None
        self._price = price(self.now, rows, self.pace.costs, self.pace.acceptance)
        if drafting:
            self._say()
        return self.now

    @property
    def places(self) -> int:
        """Drafts that a row of this call will have for its next one, at most.

        Ahead, the first drafted token is a guess at what is sampled before the others.
        """
        return max(0, self.now.drafts - (self.now.way is Way.AHEAD))

    def most(self, request: str) -> int:
        """How many of those are verified."""
        return self._lengths.most(request, self.places, self._price)

    def found(self, request: Any) -> list[int] | None:
        """What is verified in place of the draft model's tokens in the call that begins; None: those.

        Args:
            request: vLLM's `Request`, which may have drafts in this call.
        """
        if self.now.way is Way.AHEAD:  # the drafter goes on from what it has drafted itself
            return None
        return self._sources.draft(
            request.request_id,
            _job(request),
            request.all_token_ids,
            request.num_prompt_tokens,
            self._drafts,
            modelled=len(request.spec_token_ids),
            price=self._price,
        )

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        """So many drafts of a row were verified, and so many, from the first on, accepted."""
        self._lengths.verified(request, drafts, accepted)
        self._sources.verified(request, drafts, accepted)

    def ended(self, request: Any) -> None:
        """A row (vLLM's `Request`) will not come back."""
        name, whole = request.request_id, request.status in _WHOLE
        self._lengths.ended(name)
        self._sources.ended(name, _job(request), request.all_token_ids, request.num_prompt_tokens, whole=whole)

    def _say(self) -> None:
        clock = time.monotonic()
        if self.now != self._logged and clock >= self._log_due:
            self._logged, self._log_due = self.now, clock + _LOG_S
            log.info("%s", self._mode.why)


def _job(request: Any) -> str:
    """The job that a row belongs to; "" where it is not known."""
    asked = request.sampling_params
    return str(((asked and asked.extra_args) or {}).get(sources.JOB, ""))
