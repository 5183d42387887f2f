"""What passes cost: V of the target, t of the draft model, and what of a step nothing hides; learnt from passes.

    V = g(tokens) + b requests                          (ms; tokens of all requests together)
    t = f(tokens) + b requests + (drafts - 1) n(requests)

`g`, `f` and `n` are curves that grow, `b` is what the context of a request costs. A pass over few tokens takes as long
as reading the weights does, one over many as long as the products do (the roofline model, Williams et al. 2009), and
each reads the keys and values of its requests beside: so what requests and tokens cost adds up.
"""

import numpy as np
from numpy.typing import NDArray

from worker.strategies.hosts import Hosts
from worker.strategies.passes import Passes
from worker.strategies.seam import Way


class Costs:
    """Learns what passes take; what was long ago counts less.

    All that is asked is answered from curves that are fitted again when something has been added since: that takes half
    a millisecond, and an answer from them a microsecond or two.
    """

    def __init__(self) -> None:
        self._verify = Passes(loops=False)
        self._draft = Passes(loops=True)
        self._hosts = Hosts()

    def verified(self, requests: int, tokens: int, ms: float) -> None:
        """A pass of the target over `tokens` tokens of so many requests, those of prompts among them, took so long."""
        self._verify.add(requests, tokens, 1, ms)

    def drafted(self, requests: int, tokens: int, drafts: int, ms: float) -> None:
        """The draft model's passes of a call took so long.

        Args:
            requests: in the batch.
            tokens: of the first pass.
            drafts: tokens drafted for each; 0: only the first pass was made.
            ms: all passes together.
        """
        self._draft.add(requests, tokens, max(1, drafts), ms)

    def waited(self, way: Way, ms: float, *, drafting: bool) -> None:
        """A step of this way, with drafts or without, took so much longer than the passes that decide it."""
        self._hosts.add(way, drafting, ms)

    def verify_ms(self, requests: float, tokens: float) -> float | None:
        """V; None before any pass was seen.

        Beyond the sizes that were seen it goes on straight, and never takes less than the largest of them.
        """
        curves = self._verify.curves
        return None if curves is None else curves.ms(requests, tokens, 1)

    def verify_curve(self, requests: float, tokens: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """V for each of many numbers of tokens, [sizes]; None before any pass was seen."""
        curves = self._verify.curves
        return None if curves is None else curves.firsts(requests, tokens)

    def draft_ms(self, requests: float, tokens: float, drafts: int) -> float | None:
        """t; None before any pass was seen. `tokens` are those of the first pass, which is all there is of 0 drafts."""
        curves = self._draft.curves
        return None if curves is None else curves.ms(requests, tokens, max(1, drafts))

    def host_ms(self, way: Way, drafting: bool) -> float:
        """What of a step nothing hides; of a way that was not seen for long it nears the least that is known.

        That is what it is of one that never was seen, and 0 if none was.
        """
        return self._hosts.ms(way, drafting)

    def least_host_ms(self, drafting: bool) -> float:
        """The least of all ways with drafts, or without; 0 if none was seen."""
        return self._hosts.least(drafting)

    def host_known(self, way: Way, drafting: bool) -> bool:
        """Whether more than a few steps of this way, with drafts or without, were seen, and not long ago."""
        return self._hosts.known(way, drafting)

    def verify_slope(self, tokens: float) -> float:
        """What one more verified token takes, ms; 0 where that is not known, or nothing."""
        curves = self._verify.curves
        return 0.0 if curves is None else curves.slope(tokens)

    def known(self, tokens: float) -> bool:
        """Whether passes of the target of about this size were seen, more than once or twice and not long ago."""
        return self._verify.known(tokens)
