"""Which tokens each rank verifies as drafts: the drafts that have come, in place of the scheduler's placeholders.

The engine process schedules placeholders before anybody knows what will be drafted. A row may then have fewer drafts
than that: the drafter was lost, or did not guess (`Way.AHEAD`), or some were not admitted (`worker/strategies`). Every
rank trims its own copy of the step by the same rule, from the same messages, so all of them compute the same pass; the
engine takes fewer accepted drafts than it scheduled as rejected ones, and rolls back as many tokens as are missing.

Drafts follow a row's text at one place, so they are of use in one call: the next one that the row is in. A rank that
verified other drafts than the others would compute nonsense, so nothing here depends on when messages come: drafts that
come after that call has begun, as those of a prompt that is read in consecutive calls, count nowhere.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from torch import Tensor

from worker.minedraft.relay import NO_DRAFT


class Scheduled(Protocol):
    """What of a step's drafts the table reads, and writes; see `lanes.Step`."""

    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    finished_req_ids: set[str]
    total_num_scheduled_tokens: int
    has_structured_output_requests: bool


class _Newest(NamedTuple):
    """What a request's next call verifies.

    Attributes:
        call: the last one that the request was in.
        drafts: of that call; none while they have not come.
        proposal: [drafts, vocabulary] what they were drawn from.
    """

    call: int
    drafts: Sequence[int] = ()
    proposal: Tensor | None = None


class DraftTable:
    """The newest drafts of each request that has not ended.

    Attributes:
        proposals: [drafts, vocabulary] what the drafts of a request were drawn from, where they were, of the step that
            was filled last.
        drafted: of that step, how many of the drafts that each request has verified are from messages; those that have
            some.
        missing: of that step, how many zeros stand for drafts that each request does not have; those with some.
        verified: of that step, how many drafts each request has verified that had placeholders, without zeros that
            stand for missing ones; None where none has fewer.
    """

    def __init__(self) -> None:
        self.proposals: dict[str, Tensor] = {}
        self.drafted: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self.verified: dict[str, int] | None = None
        self._drafts: dict[str, _Newest] = {}

    def store(
        self,
        call: int,
        requests: Sequence[str],
        drafts: Sequence[Sequence[int]],
        proposals: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Keep a message's rows, except those of requests that ended, or were in another call, while it was under way.

        Args:
            call: whose drafts they are.
            requests: in the order of rows.
            drafts: of each row; they end at its first `NO_DRAFT`.
            proposals: [drafts, vocabulary] of requests whose drafts were drawn.
        """
        proposals = proposals or {}
        for request, row in zip(requests, drafts, strict=True):
            newest = self._drafts.get(request)
            if newest is not None and newest.call == call:
                self._drafts[request] = _Newest(call, _valid(row), proposals.get(request))

    def forget_drafts(self) -> None:
        """Nobody has drafts any more."""
        self._drafts = {request: _Newest(newest.call) for request, newest in self._drafts.items()}

    def fill(self, step: Scheduled, call: int) -> None:
        """Put drafts in place of the step's placeholders, and trim it to them; forget requests that have ended.

        Ids that the engine process has put there itself (`Source`) stay. In a call with a grammar nothing is trimmed,
        as its masks are laid out by what was scheduled: a missing draft becomes token 0, which is as lossless as any
        other guess.

        Args:
            step: of this rank; written.
            call: its number.
        """
        for request in step.finished_req_ids:
            self._drafts.pop(request, None)
        none = _Newest(call)
        newest = {request: self._drafts.get(request, none) for request in step.num_scheduled_tokens}
        self._drafts.update(dict.fromkeys(newest, none))
        self.proposals, self.drafted, self.missing = {}, {}, {}
        tokens, fewer = step.total_num_scheduled_tokens, 0
        placed = step.scheduled_spec_decode_tokens
        scheduled = list(placed.items())
        for request, places in scheduled:
            if places[0] == NO_DRAFT:
                found = list(newest[request].drafts[: len(places)])
                if found:
                    self.drafted[request] = len(found)
                proposal = newest[request].proposal
                if found and proposal is not None:
                    self.proposals[request] = proposal[: len(found)]
            else:
                found = list(_valid(places))
            missing = len(places) - len(found)
            if missing and step.has_structured_output_requests:
                self.missing[request] = missing
                found += [0] * missing
            fewer += _trim(step, request, found)
        step.total_num_scheduled_tokens = tokens - fewer
        self.verified = None
        if fewer or self.missing:
            drafts = ((request, len(placed.get(request, ()))) for request, _ in scheduled)
            self.verified = {request: count - self.missing.get(request, 0) for request, count in drafts}

    @property
    def requests(self) -> Set[str]:
        """Those that it knows."""
        return self._drafts.keys()

    def __len__(self) -> int:
        """How many that are."""
        return len(self._drafts)


def _valid(row: Sequence[int]) -> Sequence[int]:
    """A row's drafts up to the first that is none."""
    return row[: row.index(NO_DRAFT)] if NO_DRAFT in row else row


def _trim(step: Scheduled, request: str, drafts: list[int]) -> int:
    """Let a request verify these drafts; how many tokens fewer than were scheduled that are."""
    fewer = len(step.scheduled_spec_decode_tokens[request]) - len(drafts)
    step.num_scheduled_tokens[request] -= fewer
    if drafts:
        step.scheduled_spec_decode_tokens[request] = drafts
    else:
        del step.scheduled_spec_decode_tokens[request]
    return fewer
