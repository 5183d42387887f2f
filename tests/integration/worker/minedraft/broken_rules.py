"""Ranks whose rule for drafts is wrong, in one of several ways. Named by tests; run in vLLM's worker processes.

Which way, a file says, so one engine can be wrong in all of them, one after the other.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from worker.minedraft import runner_v1, sampling
from worker.minedraft.classes import Ranks
from worker.minedraft.link import REJECTED
from worker.minedraft.proposer import Proposer
from worker.minedraft.ranks_v1 import DrafterWorker, VerifierWorker

#: The environment variable that names the file.
FILE = "TEST_BROKEN_RULE"
RANKS = Ranks(verifier=f"{__name__}.BrokenVerifier", drafter=f"{__name__}.BrokenDrafter")
#: What the file says where nothing is wrong.
RIGHT = "nothing"

_accepts, _residual, _forward = sampling.accepts, sampling.residual, sampling.DraftSampler.forward


def _at(table: Tensor, ids: Tensor) -> Tensor:
    return table.gather(1, ids.long().unsqueeze(1)).squeeze(1)


#: Wrong ones in place of `sampling.accepts` and `sampling.residual`; these matter to drafts that were drawn.
ACCEPTS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "a drawn draft stays where the target may say it": lambda p, q, d, u: _at(p, d) > 0,
    "p and q are swapped": lambda p, q, d, u: _accepts(q, p, d, u),
    "q is left out": lambda p, q, d, u: u < _at(p, d),
}
RESIDUAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the residual is p": lambda p, q: p,
    "the residual is q - p": lambda p, q: _residual(q, p),
}


def _every_draft(ids: Tensor, drafts: Tensor, counts: Tensor, likeliest: Tensor) -> Tensor:
    places = torch.arange(ids.shape[1])
    ids[places < counts.unsqueeze(1)] = drafts[drafts != REJECTED]
    ids[places == counts.unsqueeze(1)] = likeliest
    return ids


def _first_draft(ids: Tensor, drafts: Tensor, counts: Tensor, likeliest: Tensor) -> Tensor:
    rejected = (counts > 0) & (ids[:, 0] != drafts[:, 0])
    ids[rejected, 0] = drafts[rejected, 0]
    return ids


def _likeliest_bonus(ids: Tensor, drafts: Tensor, counts: Tensor, likeliest: Tensor) -> Tensor:
    whole = (ids != REJECTED).sum(dim=1) == counts + 1
    whole &= counts > 0
    ids[whole, counts[whole]] = likeliest[whole]
    return ids


#: What is made of [rows, drafts + 1] sampled ids, given [rows, drafts] drafts, [rows] how many each has, and [rows]
#: the likeliest token after them; these matter to all drafts.
SAMPLED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "every draft stays": _every_draft,
    "the first draft of a step stays": _first_draft,
    "what follows accepted drafts is the likeliest": _likeliest_bonus,
}

WRONG = [*ACCEPTS, *RESIDUAL, *SAMPLED]
#: Matters where drafts are drawn and not all of them admitted: as TETRIS has it in its paper.
NAIVE = "a draft is admitted for its own probability"


def said() -> str:
    """What is wrong now."""
    return Path(os.environ[FILE]).read_text(encoding="utf-8")


def _broken_accepts(p: Tensor, q: Tensor, drafts: Tensor, uniform: Tensor) -> Tensor:
    return ACCEPTS.get(said(), _accepts)(p, q, drafts, uniform)


def _broken_residual(p: Tensor, q: Tensor) -> Tensor:
    return RESIDUAL.get(said(), _residual)(p, q)


def _broken_forward(self: Any, metadata: Any, draft_probs: Any, logits: Tensor, sampled: Any) -> Any:
    counts = torch.tensor(metadata.num_draft_tokens)
    likeliest = logits[torch.cumsum(counts + 1, 0) - 1].argmax(dim=1).to(torch.int32)
    output = _forward(self, metadata, draft_probs, logits, sampled)
    if (change := SAMPLED.get(said())) is not None:
        drafts = torch.full((len(counts), metadata.max_spec_len), REJECTED, dtype=torch.int32)
        drafts[torch.arange(metadata.max_spec_len) < counts.unsqueeze(1)] = metadata.draft_token_ids
        output.sampled_token_ids = change(output.sampled_token_ids, drafts, counts, likeliest)
    return output


class BrokenVerifier(VerifierWorker):
    """A verifier that does as the file says."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        sampling.accepts, sampling.residual = _broken_accepts, _broken_residual
        sampling.DraftSampler.forward = _broken_forward
        super().__init__(*args, **kwargs)


class NaiveProposer(Proposer):
    """Is as sure of a draft as it was likely to be drawn."""

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, Tensor | None]:
        ids, proposal = super()._sample_draft_tokens(hidden_states, sampling_metadata)
        if said() == NAIVE and proposal is not None:
            self._chances[-1] = _at(proposal, ids)
        return ids, proposal


class BrokenDrafter(DrafterWorker):
    """A drafter that does as the file says."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        runner_v1.Proposer = NaiveProposer  # type: ignore[misc]
        super().__init__(*args, **kwargs)
