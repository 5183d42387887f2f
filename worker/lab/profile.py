"""How long devices take: what a forward pass costs as a function of what is in it. Plain numbers, no vLLM.

A pass over n tokens reads every weight once and multiplies each token by all of them; whichever takes longer decides
(Williams et al. 2009, the roofline model). It then reads the keys and values of what came before each request, and
pays a fixed time for launches and, between devices, for reductions.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class PassCost:
    """The time of one forward pass of a model on its devices (ms).

    Attributes:
        fixed_ms: of every pass: launches, reductions.
        floor_ms: to read all weights once.
        token_ms: to compute one token; all of them together take at least `floor_ms`.
        context_token_ms: to read the keys and values of one token of context.
        link_token_ms: to send one token's activations between the devices.
    """

    fixed_ms: float
    floor_ms: float = 0.0
    token_ms: float = 0.0
    context_token_ms: float = 0.0
    link_token_ms: float = 0.0

    def ms(self, tokens: int, context: int = 0) -> float:
        """A pass over `tokens` tokens of all requests together, which come after `context` tokens in all."""
        computed = max(self.floor_ms, self.token_ms * tokens)
        return self.fixed_ms + computed + self.link_token_ms * tokens + self.context_token_ms * context


@dataclass(frozen=True, slots=True)
class Profile:
    """A pair of models on imagined devices.

    Attributes:
        name: as it is asked for.
        devices: how many of them the target has; the drafter has one more.
        target: a pass of the target on its devices.
        draft: a pass of the draft model on one device.
        target_on_all: a pass of the target if it had the drafter's device, too; None: it cannot be divided so.
        target_on_one: a pass of the target on one device; None: it does not fit there beside the draft model.
        draft_on_target: a pass of the draft model on the target's devices, where these draft, too (`sd`); None: as on
            one.
        acceptance: of the drafts at each position, the share accepted where all before were; the last holds for
            all later positions.
        spread: how much of what decides about a draft the drafter knows, from 0 to 1: each draft has a chance of its
            own, and this is the variance of the chances over a(1 - a), the most that chances around an acceptance a
            can have. 0: all have the chance a.
        template: the share of each text that is the same in all rows (`worker.lab.text`).
        sources: where the numbers come from, a line each.
    """

    name: str
    devices: int
    target: PassCost
    draft: PassCost
    target_on_all: PassCost | None = None
    target_on_one: PassCost | None = None
    draft_on_target: PassCost | None = None
    acceptance: tuple[float, ...] = (0.7,)
    spread: float = 0.0
    template: float = 0.0
    sources: tuple[str, ...] = ()

    @property
    def assumption(self) -> str:
        """What no data sheet says, in a line."""
        shares = ", ".join(f"{share:g}" for share in self.acceptance)
        return f"assumed, not measured: {shares} of the drafts accepted at each position; times are a roofline's"

    def solo(self, target: PassCost | None = None) -> "Profile":
        """The pair on devices that both draft and verify: the target's, or others that it is on."""
        return replace(self, target=target or self.target, draft=self.draft_on_target or self.draft)

    def verify_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """V: the target's pass over `requests` requests with so many drafts each; without drafts, a plain step.

        Args:
            requests: in the batch.
            drafts: drafted tokens of each.
            context: tokens that came before, of each request.
            prefill: tokens of prompts that are read in the same pass.
        """
        return self.target.ms(requests * (drafts + 1) + prefill, requests * context)

    def draft_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """t: the draft model's passes for a batch: over what was sampled, then over each draft but the last.

        Args:
            requests: in the batch.
            drafts: tokens drafted for each.
            context: tokens that came before, of each request.
            prefill: tokens of prompts that are read with what was sampled.
        """
        if drafts == 0:
            return 0.0
        return self.passes_ms(requests, requests * (drafts + 1) + prefill, drafts, context=context)

    def passes_ms(self, requests: int, tokens: int, drafts: int, *, context: int = 0) -> float:
        """The same by what the first pass reads; without drafts that pass alone, for the drafter's cache.

        Args:
            requests: in the batch.
            tokens: of all requests together: what was verified, and prompts.
            drafts: tokens drafted for each.
            context: tokens that came before, of each request.
        """
        first = self.draft.ms(tokens, requests * context)
        return first + max(0, drafts - 1) * self.draft.ms(requests, requests * context)

    def accepted_at(self, position: int) -> float:
        """The share of drafts at a position, from 0, that is accepted where all before were."""
        return self.acceptance[min(position, len(self.acceptance) - 1)]

    def to_json(self) -> str:
        """For an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Profile":
        """What `to_json` wrote."""
        fields = json.loads(text)
        names = ("target", "draft", "target_on_all", "target_on_one", "draft_on_target")
        costs = {name: fields[name] and PassCost(**fields[name]) for name in names}
        lists = {name: tuple(fields[name]) for name in ("acceptance", "sources")}
        return cls(**{**fields, **costs, **lists})


def tokens_a_cycle(acceptance: Sequence[float]) -> float:
    """The mean number of tokens that a verified request gets, with so many drafts: 1 + sum over j of p1 x ... x pj.

    Args:
        acceptance: for each draft, the share accepted where all before it were.
    """
    total, reached = 1.0, 1.0
    for share in acceptance:
        reached *= share
        total += reached
    return total
