"""What workers did of late, from what they say at their heartbeats."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from producer.record.fleet import WorkerCard, WorkerStats
from producer.record.provenance import EngineNote

#: Of late: longer than rows take that begin and end together, mostly.
WINDOW_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Effort:
    """What was done in a time; rates are per second, shares 0 to 1, and None where there was nothing to share.

    Attributes:
        seconds: the time.
        rows: answered and failed.
        prompt_tokens: of answered rows.
        completion_tokens: of answered rows.
        drafted: draft tokens that were verified.
        accepted: those of them that were accepted.
        hidden_seconds: drafting while a batch was being verified.
        hideable_seconds: the most that it could have been: the smaller of one worker's drafting and verifying.
    """

    seconds: float = 0.0
    rows: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    hidden_seconds: float = 0.0
    hideable_seconds: float = 0.0

    @classmethod
    def between(cls, before: WorkerStats, after: WorkerStats) -> "Effort":
        """What one worker did between two heartbeats."""
        gain = {each.name: getattr(after, each.name) - getattr(before, each.name) for each in fields(WorkerStats)}
        return cls(
            seconds=gain["seconds"],
            rows=gain["answered"] + gain["failed"],
            prompt_tokens=gain["prompt_tokens"],
            completion_tokens=gain["completion_tokens"],
            drafted=gain["drafted"],
            accepted=gain["accepted"],
            hidden_seconds=gain["hidden_seconds"],
            hideable_seconds=min(gain["draft_seconds"], gain["verify_seconds"]),
        )

    @classmethod
    def noted(cls, note: EngineNote) -> "Effort":
        """What one worker did for a job; nobody notes in how many seconds."""
        return cls(
            rows=note.rows,
            prompt_tokens=note.prompt_tokens,
            completion_tokens=note.completion_tokens,
            drafted=note.drafted,
            accepted=note.accepted,
            hidden_seconds=note.hidden_seconds,
            hideable_seconds=min(note.draft_seconds, note.verify_seconds),
        )

    @property
    def tokens_per_second(self) -> float:
        """Completion tokens."""
        return self.completion_tokens / self.seconds if self.seconds else 0.0

    @property
    def acceptance(self) -> float | None:
        """The share of drafts that was accepted."""
        return self.accepted / self.drafted if self.drafted > 0 else None

    @property
    def overlap(self) -> float | None:
        """The share of the draft time that could be hidden which was: hidden / min(drafting, verifying)."""
        return min(self.hidden_seconds / self.hideable_seconds, 1.0) if self.hideable_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class WorkerAtWork:
    """A worker, and what it did of late (nothing, as long as it has said only once what it does)."""

    card: WorkerCard
    effort: Effort


class Crew:
    """Follows the workers that serve a job."""

    def __init__(self) -> None:
        self._heard: dict[str, deque[WorkerStats]] = {}

    def hear(self, cards: Iterable[WorkerCard]) -> list[WorkerAtWork]:
        """These workers live now; those that were heard of before and are not among them are forgotten."""
        living = {card.worker_id: card for card in sorted(cards, key=lambda card: card.worker_id)}
        self._heard = {name: self._heard.get(name, deque()) for name in living}
        return [WorkerAtWork(card, self._effort(card)) for card in living.values()]

    def _effort(self, card: WorkerCard) -> Effort:
        heard, stats = self._heard[card.worker_id], card.stats
        if stats is None:
            return Effort()
        if not heard or stats.seconds > heard[-1].seconds:
            heard.append(stats)
        while len(heard) > 2 and heard[-1].seconds - heard[1].seconds >= WINDOW_SECONDS:
            heard.popleft()
        return Effort.between(heard[0], heard[-1])


def together(efforts: Collection[Effort]) -> Effort:
    """What several workers did, added up; `seconds` is the longest of their times."""
    sums = {
        each.name: sum(getattr(effort, each.name) for effort in efforts)
        for each in fields(Effort)
        if each.name != "seconds"
    }
    return Effort(seconds=max((effort.seconds for effort in efforts), default=0.0), **sums)
