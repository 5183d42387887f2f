"""The drafts of rows that the engine's process finds itself, in place of the draft model's.

It knows all of a row's text when it schedules it, so what is found needs no link and no time of the drafter's. Where
nothing is found, or nothing likely, the row has the draft model's drafts: there is a drafter anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from worker.strategies.seam import Source
from worker.strategies.sources.mixed import MODEL, Mixed
from worker.strategies.sources.trust import Trust

#: A draft that is reached and right with less than this chance is not verified, whatever one costs: the draft model's
#: are likelier.
_FLOOR = 0.25
#: The next source is not asked where so much of what may be verified is expected to be accepted of one's drafts: asking
#: takes longer than choosing.
_ENOUGH = 0.75
#: One draft is verified all the same every so many times that the first is below: the source may have got better.
_PROBE = 16


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a row was given.

    Attributes:
        source: where it is from.
        job: the row's job.
        ids: the drafts; of the draft model's, nothing is known here.
        raw: what the source said of each draft.
        chances: what that is worth; of the draft model's, 1.
    """

    source: str
    job: str
    ids: list[int] = field(default_factory=list)
    raw: Sequence[float] = ()
    chances: Sequence[float] = ()


class Drafts:
    """Finds drafts in the engine's process.

    Args:
        sources: by name, the best first.
        mixed: chooses among them and the draft model; None: the first source that has something likely.
    """

    def __init__(self, sources: Mapping[str, Source], mixed: Mixed | None = None) -> None:
        self._sources = sources
        self._mixed = mixed
        self._trust = {name: Trust() for name in sources}
        self._offers: dict[str, _Offer] = {}
        self._unlikely = dict.fromkeys(sources, 0)

    def draft(
        self,
        request: str,
        job: str,
        tokens: Sequence[int],
        prompt: int,
        most: int,
        *,
        modelled: int,
        price: float = 0.0,
    ) -> list[int] | None:
        """The tokens to verify in a row's next call; None: those of the draft model.

        Args:
            request: the row.
            job: its job; "": not known.
            tokens: all that it has, its prompt first. From call to call they only grow.
            prompt: how many of them are its prompt.
            most: how many drafts may be verified.
            modelled: how many the draft model will have for it.
            price: what one more verified token costs, in tokens (`Lengths.most`): what is less likely is not verified.
        """
        if not self._sources or most < 1:
            return None
        found = self._found(request, job, tokens, prompt, most, max(_FLOOR, price))
        if self._mixed is None:
            offer = found[0] if found else _Offer(MODEL, job)
        else:
            sure = [1.0] * min(most, modelled)
            offer = self._best(self._mixed, request, [_Offer(MODEL, job, chances=sure), *found])
        self._offers[request] = offer
        return None if offer.source == MODEL else offer.ids

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        """What came of the drafts of a row's last call, whosever they were.

        Args:
            request: the row.
            drafts: how many were verified.
            accepted: how many of those, from the first on, were accepted.
        """
        offer = self._offers.pop(request, None)
        if offer is None or not drafts:
            return
        if offer.source != MODEL:
            self._trust[offer.source].add(offer.raw, min(drafts, len(offer.raw)), accepted)
        if self._mixed:
            told = offer.chances[:drafts] if offer.source != MODEL else [1.0] * drafts
            self._mixed.verified(request, offer.job, offer.source, told, accepted)

    def ended(self, request: str, job: str, tokens: Sequence[int], prompt: int, *, whole: bool) -> None:
        """A row will not come back; see `Source.ended`."""
        self._offers.pop(request, None)
        for source in self._sources.values():
            source.ended(request, job, tokens, prompt, whole=whole)
        if self._mixed:
            self._mixed.ended(request)

    def _found(
        self, request: str, job: str, tokens: Sequence[int], prompt: int, most: int, least: float
    ) -> list[_Offer]:
        """What sources have that is likely: the first one's; where they are mixed of all, until one's is enough."""
        offers: list[_Offer] = []
        for name, source in self._sources.items():
            found = source.find(request, job, tokens, prompt, most)
            chances = [self._trust[name](chance) for chance in found.chances]
            likely = self._likely(name, chances, least)
            if likely:
                offers.append(_Offer(name, job, found.ids[:likely], found.chances[:likely], chances[:likely]))
                if self._mixed is None or sum(accumulate(chances[:likely], mul)) >= _ENOUGH * most:
                    break
        return offers

    @staticmethod
    def _best(mixed: Mixed, request: str, offers: Sequence[_Offer]) -> _Offer:
        """The offer of which most is expected, or one that always had to stand back."""
        worth = [mixed.accepted(request, offer.job, offer.source, offer.chances) for offer in offers]
        best = offers[worth.index(max(worth))]
        tried = [
            offer for offer in offers if offer is not best and offer.chances and mixed.is_tried(offer.job, offer.source)
        ]
        return tried[0] if tried else best

    def _likely(self, name: str, chances: Sequence[float], least: float) -> int:
        """How many of a source's drafts are worth their place."""
        likely = sum(1 for reached in accumulate(chances, mul) if reached >= least)
        if likely or not chances:
            return likely
        self._unlikely[name] += 1
        return int(self._unlikely[name] % _PROBE == 0)
