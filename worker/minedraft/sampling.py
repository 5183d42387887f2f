"""What a verifier makes of drafts: each place is sampled as plain decoding would, and a draft that was sampled stays.

vLLM's `RejectionSampler` (`v1/sample/rejection_sampler.py`) has code of its own for every sampling parameter, ignores
two of them, and draws random numbers in another order than plain decoding. Here vLLM's plain `Sampler` runs for the
first place of all rows, then for the second place of those whose first draft it has sampled, and so on. So a parameter
means what it means without drafts, and a row with a seed, whose generator is asked once for each token, gets the text
that it gets without drafts.

For a draft that is its model's likeliest token this accepts as often as rejection sampling: with the probability that
the target gives it. A draft that was drawn from a distribution q, its *proposal*, which came with it, stays with
probability min(1, p/q); else the token is drawn from max(p - q, 0) (Leviathan et al., arXiv 2211.17192, algorithm 1).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from vllm.sampling_params import SamplingParams, SamplingType
from vllm.utils.torch_utils import PIN_MEMORY
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    LogitBiasLogitsProcessor,
    LogitsProcessors,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from worker.minedraft.link import REJECTED

#: Logits processors that may change which token is the likeliest, and where each keeps its rows.
_CHANGE_THE_LIKELIEST = {MinTokensLogitsProcessor: "min_toks", LogitBiasLogitsProcessor: "biases"}


def has_proposals(params: SamplingParams) -> bool:
    """Whether a row's drafts are drawn, where the engine is asked for that: it is sampled, and has no seed.

    What a row with a seed says must not depend on the drafter's random numbers.
    """
    return bool(params.sampling_type is SamplingType.RANDOM)


def logits_processors(config: Any, device: torch.device) -> LogitsProcessors:
    """All of vLLM's own; its `build_logitsprocs` leaves out those that its sampler for drafts does not know.

    Args:
        config: the `VllmConfig`.
        device: that the logits are on.
    """
    return LogitsProcessors(made(config, device, PIN_MEMORY) for made in BUILTIN_LOGITS_PROCESSORS)


def accepts(target: Tensor, proposal: Tensor, drafts: Tensor, uniform: Tensor) -> Tensor:
    """Whether drafts stay.

    Args:
        target: [rows, vocabulary] p, what the target model would draw from.
        proposal: [rows, vocabulary] q, what each draft was drawn from.
        drafts: [rows] ids.
        uniform: [rows] random numbers from [0, 1).

    Returns:
        [rows] true with probability min(1, p/q) of the draft.
    """
    at = drafts.long().unsqueeze(1)
    return uniform * proposal.gather(1, at).squeeze(1) < target.gather(1, at).squeeze(1)


def residual(target: Tensor, proposal: Tensor) -> Tensor:
    """What the token in place of a rejected draft is drawn from: max(p - q, 0), normalised.

    Args:
        target: [rows, vocabulary] p.
        proposal: [rows, vocabulary] q.

    Returns:
        [rows, vocabulary]; p itself where it is nowhere above q, which only rounding brings about.
    """
    left = (target - proposal).clamp_min_(0)
    total = left.sum(dim=1, keepdim=True)
    return torch.where(total > 0, left / total, target)


class Drafted(NamedTuple):
    """Rows with a draft that was drawn, at one place.

    Attributes:
        rows: [drafted] which rows of the batch.
        ids: [drafted] the drafts.
        proposals: [drafted, vocabulary] float32.
    """

    rows: Tensor
    ids: Tensor
    proposals: Tensor


class ProposalSampler(nn.Module):  # type: ignore[misc] # torch's types are not read
    """Stands where vLLM's `Sampler` draws from its logits: `TopKTopPSampler`.

    Args:
        inner: vLLM's own.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self.drafted: Drafted | None = None
        """Rows that have a draft and its proposal now."""

    def forward(
        self, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Draw tokens.

        Args:
            logits: [rows, vocabulary] after all but top-k and top-p; written.
            generators: of rows with a seed.
            k: [rows] top-k.
            p: [rows] top-p.

        Returns:
            [rows] ids, and what vLLM shows as processed logits or logprobs where it is told to.
        """
        if self.drafted is None:
            return self._inner(logits, generators, k, p)  # type: ignore[no-any-return]
        logits = apply_top_k_top_p(logits, k, p)
        shown = {"processed_logits": Tensor.clone, "processed_logprobs": lambda it: it.log_softmax(-1)}
        processed = shown.get(self._inner.logprobs_mode, lambda _: None)(logits)
        rows, ids, proposals = self.drafted
        target = logits[rows].softmax(dim=-1, dtype=torch.float32)
        kept = accepts(target, proposals, ids, torch.rand(len(rows), device=logits.device))
        # A draft that stays is all that can be drawn.
        chosen = torch.zeros_like(target).scatter_(1, ids.long().unsqueeze(1), 1.0)
        logits[rows] = torch.where(kept.unsqueeze(1), chosen, residual(target, proposals)).log()
        return self._inner(logits, generators, None, None)[0], processed


class DraftSampler(nn.Module):  # type: ignore[misc] # torch's types are not read
    """Stands where vLLM's V1 runner has its `RejectionSampler`.

    Args:
        sampler: vLLM's plain `Sampler`.
        outputs: gives the ids that each row of the batch has so far, as vLLM's own lists.
    """

    def __init__(self, sampler: Any, outputs: Callable[[], Sequence[list[int]]]) -> None:
        super().__init__()
        self._sampler, self._outputs = sampler, outputs
        self._last = sampler.topk_topp_sampler = ProposalSampler(sampler.topk_topp_sampler)
        self.proposals: Mapping[int, Tensor] = {}
        """[drafts, vocabulary] of each row of the coming call whose drafts were drawn; others may follow those."""

    def forward(self, metadata: Any, draft_probs: None, logits: Tensor, sampling: Any) -> SamplerOutput:
        """Sample, and compare with the drafts.

        Args:
            metadata: vLLM's `SpecDecodeMetadata`: which rows have which drafts.
            draft_probs: of no use; proposals are in `proposals`.
            logits: [drafts of all rows + rows, vocabulary].
            sampling: vLLM's `SamplingMetadata`.

        Returns:
            [rows, most drafts + 1] ids: the accepted drafts and one more, then REJECTED; logprobs in the same order.
        """
        counts = torch.tensor(metadata.num_draft_tokens)
        starts = torch.cumsum(counts + 1, 0) - counts - 1
        drafts = torch.full((len(counts), metadata.max_spec_len), REJECTED, dtype=torch.int32)
        drafts[torch.arange(metadata.max_spec_len) < counts.unsqueeze(1)] = metadata.draft_token_ids.cpu()
        if _takes_the_likeliest(sampling):
            return _compared(self._sampler.greedy_sample(logits.to(torch.float32)), starts, counts, drafts)
        return self._place_by_place(logits, sampling, starts, counts, drafts)

    def _place_by_place(
        self, logits: Tensor, sampling: Any, starts: Tensor, counts: Tensor, drafts: Tensor
    ) -> SamplerOutput:
        rows, width = len(counts), drafts.shape[1] + 1
        ids = torch.full((rows, width), REJECTED, dtype=torch.int32)
        logprobs = []
        alive = torch.ones(rows, dtype=torch.bool)
        with _growing(self._outputs()) as outputs:
            for place in range(width):
                with self._drawn(drafts, alive & (place < counts), place):
                    # Rows that have ended are sampled once more, for nothing.
                    at = torch.where(alive, starts + place, starts)
                    found = self._sampler(logits[at], _at(place, sampling, alive))
                sampled = found.sampled_token_ids[:, 0].cpu()
                ids[alive, place] = sampled[alive]
                logprobs.append(found.logprobs_tensors)
                if place == width - 1:
                    break
                alive = alive & (sampled == drafts[:, place])
                if not alive.any():
                    break
                for row in alive.nonzero().flatten().tolist():
                    outputs[row].append(int(sampled[row]))
        return SamplerOutput(ids.to(logits.device), _in_order(logprobs, width))

    @contextmanager
    def _drawn(self, drafts: Tensor, drafted: Tensor, place: int) -> Iterator[None]:
        """Say which rows have a draft with a proposal at a place."""
        rows = [row for row, proposal in self.proposals.items() if drafted[row] and place < len(proposal)]
        if rows:
            proposals = torch.stack([self.proposals[row][place] for row in rows])
            self._last.drafted = Drafted(torch.tensor(rows), drafts[rows, place], proposals)
        try:
            yield
        finally:
            self._last.drafted = None


def _takes_the_likeliest(sampling: Any) -> bool:
    """Whether all rows want nothing but the likeliest token: then no place needs the one before it."""
    return bool(
        sampling.all_greedy
        and sampling.no_penalties
        and not sampling.bad_words_token_ids
        and sampling.allowed_token_ids_mask is None
        and sampling.max_num_logprobs is None
        and not sampling.logprob_token_ids
        and not any(
            getattr(processor, _CHANGE_THE_LIKELIEST[type(processor)])
            for processor in sampling.logitsprocs.non_argmax_invariant
        )
    )


def _compared(sampled: Tensor, starts: Tensor, counts: Tensor, drafts: Tensor) -> SamplerOutput:
    """What of the drafts is what was sampled, all places at once.

    Args:
        sampled: [drafts of all rows + rows] ids.
        starts: [rows] where each one's begin.
        counts: [rows] how many drafts each has.
        drafts: [rows, most drafts] ids, REJECTED after the last one.
    """
    places = torch.arange(drafts.shape[1] + 1)
    ids = sampled.cpu()[starts.unsqueeze(1) + torch.minimum(places, counts.unsqueeze(1))].to(torch.int32)
    accepted = (ids[:, :-1] == drafts).cumprod(dim=1).sum(dim=1)
    ids[places > accepted.unsqueeze(1)] = REJECTED
    return SamplerOutput(ids.to(sampled.device), logprobs_tensors=None)


@contextmanager
def _growing(outputs: Sequence[list[int]]) -> Iterator[Sequence[list[int]]]:
    """Let rows' outputs be longer inside the block: penalties, bad words and `min_tokens` read vLLM's own lists."""
    lengths = [len(output) for output in outputs]
    try:
        yield outputs
    finally:
        for output, length in zip(outputs, lengths, strict=True):
            del output[length:]


def _at(place: int, sampling: Any, alive: Tensor) -> Any:
    """vLLM's `SamplingMetadata` for one place: only rows that have come so far ask their generators."""
    generators = {row: generator for row, generator in sampling.generators.items() if alive[row]}
    processors = sampling.logitsprocs
    if place:
        processors = LogitsProcessors(
            _grown(processor) for processor in (*processors.argmax_invariant, *processors.non_argmax_invariant)
        )
    return replace(sampling, generators=generators, logitsprocs=processors)


def _grown(processor: Any) -> Any:
    """A logits processor for outputs that have grown: `min_tokens` keeps rows in it until they are long enough."""
    if not isinstance(processor, MinTokensLogitsProcessor):
        return processor
    grown = copy(processor)
    grown.min_toks = dict(processor.min_toks)
    grown.update_state(None)
    return grown


def _in_order(found: Sequence[LogprobsTensors | None], width: int) -> LogprobsTensors | None:
    """Logprobs of each place, [rows, ...], as [rows * width, ...]: a row's places follow each other."""
    given = [logprobs for logprobs in found if logprobs is not None]
    if not given:
        return None
    # Places that no row has come to are not read.
    given += [given[-1]] * (width - len(given))
    tensors = (
        torch.stack([getattr(logprobs, name) for logprobs in given], dim=1).flatten(0, 1)
        for name in ("logprob_token_ids", "logprobs", "selected_token_ranks")
    )
    return LogprobsTensors(*tensors)
