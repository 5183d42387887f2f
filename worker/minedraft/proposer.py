"""vLLM's own proposer (`vllm/v1/spec_decode/draft_model.py`), told where to draft from, and asked how sure it is."""

from typing import Any

import torch
from torch import Tensor
from vllm.v1.spec_decode.draft_model import DraftModelProposer


class Proposer(DraftModelProposer):  # type: ignore[misc] # vLLM's types are not read
    """Drafts after what was sampled, or ahead of it.

    Attributes:
        ahead: [rows] where given, draft from the last token of each row that is being verified, as if all of them
            stood, and not from what was sampled. All but so many at the row's end, which are no drafts.
        first_pass_only: draft nothing, but read what is new.
        notes_chances: whether `chances` are wanted, which cost a pass over the logits.
        noted: those so far of what is drafted, [rows] for each place.
    """

    ahead: Tensor | None = None
    first_pass_only = False
    notes_chances = False
    noted: list[Tensor]

    @property
    def chances(self) -> Tensor:
        """[rows, drafts] float32, of those that were drafted last: how sure the model was before it chose each token.

        The largest probability of its distribution: where a token was drawn, at the row's temperature.
        """
        return torch.stack(self.noted, dim=1)

    def propose(
        self, *, num_speculative_tokens: int, target_token_ids: Tensor, common_attn_metadata: Any, **others: Any
    ) -> Tensor:
        """Draft: [rows, drafts] ids. See vLLM's `SpecDecodeBaseProposer.propose`.

        vLLM's first pass reads each row's tokens but for those that were rejected, and then the one that was sampled.
        Ahead, all of them are read: so the last one stands for the rejected ones, and for the sampled one, too.

        Args:
            num_speculative_tokens: to draft for each row.
            target_token_ids: [tokens] of all rows, that are being verified.
            common_attn_metadata: where each row's begin.
            others: see there.
        """
        self.noted = []
        if self.ahead is not None:
            rejected = self.ahead + 1
            others["next_token_ids"] = target_token_ids[common_attn_metadata.query_start_loc[1:] - rejected]
            others["num_rejected_tokens_gpu"] = rejected
        drafts: Tensor = super().propose(
            num_speculative_tokens=0 if self.first_pass_only else num_speculative_tokens,
            target_token_ids=target_token_ids,
            common_attn_metadata=common_attn_metadata,
            **others,
        )
        return drafts

    def _sample_draft_tokens(self, hidden_states: Tensor, sampling_metadata: Any) -> tuple[Tensor, Tensor | None]:
        if not self.notes_chances:
            return super()._sample_draft_tokens(hidden_states, sampling_metadata)  # type: ignore[no-any-return]
        logits = self.model.compute_logits(hidden_states)
        ids, proposal = self._sample_from_logits(logits, sampling_metadata)
        distribution = logits.softmax(dim=-1, dtype=torch.float32) if proposal is None else proposal
        self.noted.append(distribution.amax(dim=-1))
        return ids, proposal
