"""Devices whose times and acceptance are known, for what asks `predict.Times` and `predict.Accepted`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from worker.lab.profile import tokens_a_cycle
from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.seam import Way


@dataclass
class Devices:
    """Times of passes by the tokens in them, in ms.

    Attributes:
        verify: V.
        draft: one pass of the draft model.
        accepted: of drafts, at each position.
        host: of a step with drafts, by way.
        plain_host: of one without.
    """

    verify: Callable[[float], float]
    draft: Callable[[float], float]
    accepted: float = 0.7
    host: dict[Way, float] = field(default_factory=dict)
    plain_host: dict[Way, float] | None = None

    def verify_ms(self, requests: float, tokens: float) -> float:
        del requests
        return self.verify(tokens)

    def draft_ms(self, requests: float, tokens: float, drafts: int) -> float:
        return self.draft(tokens) + max(0, drafts - 1) * self.draft(requests)

    def host_ms(self, way: Way, drafting: bool) -> float:
        host = self.host if drafting or self.plain_host is None else self.plain_host
        return host.get(way, 0.0)

    def verify_slope(self, tokens: float) -> float:
        return self.verify(tokens + 1) - self.verify(tokens)

    def at(self, position: int) -> float:
        del position
        return self.accepted

    def tokens(self, drafts: int) -> float:
        return tokens_a_cycle([self.accepted] * drafts)

    def asked(self, drafts: int) -> tuple[float, float]:
        return 1.0 + drafts, self.tokens(drafts)

    def learnt(self, most: int = 256, drafts: int = 4) -> tuple[Costs, Acceptance]:
        """What somebody knows who has seen passes of all sizes to `most` requests, in batches of any size."""
        costs, acceptance = Costs(), Acceptance()
        for _ in range(4):
            size = 1
            while size <= most:
                for count in (0, drafts):
                    tokens = size * (1 + count)
                    costs.verified(size, tokens, self.verify(tokens))
                    costs.drafted(size, tokens, count, self.draft_ms(size, tokens, count))
                size = max(size + 1, size * 5 // 4)
        acceptance.add([10_000] * drafts, [10_000 * self.accepted ** (position + 1) for position in range(drafts)])
        for way, ms in self.host.items():
            costs.waited(way, ms, drafting=True)
            costs.waited(way, self.host_ms(way, False), drafting=False)
        return costs, acceptance
