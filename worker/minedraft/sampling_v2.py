"""What a verifier on vLLM's V2 runner makes of drafts: each place is sampled as plain decoding would.

The rule is that of `sampling.py`. Here it takes one pass: vLLM's V2 sampler draws the token at a position of a row with
random numbers that follow from the row's seed and the position alone (`v1/worker/gpu/sample/gumbel.py`), and its logits
processors are told which drafts stand before each place. So vLLM's plain `Sampler` runs for all places at once, and a
draft stays while it is what was sampled. What a row says is then what it says without drafts, seeds included; vLLM's
own rejection sampler draws other numbers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.config.model import PROCESSED_LOGPROBS_MODES
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler


def compare(sampled: Tensor, drafts: Tensor, starts: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Which of the sampled tokens count.

    Args:
        sampled: [places of all rows] ids, each sampled as if the drafts before it were right.
        drafts: [places of all rows] ids; at the first place of a row the token before, then its drafts; below 0: none.
        starts: [rows + 1] where each row's places begin.
        places: the most that a row has: drafts + 1.

    Returns:
        [rows, places] ids, of which the first ones count, and [rows] int32 how many.
    """
    first, end = starts[:-1].long(), starts[1:].long()
    place = torch.arange(places, device=sampled.device)
    at = torch.minimum(first.unsqueeze(1) + place, (end - 1).unsqueeze(1))
    ids = sampled[at]
    there = (first.unsqueeze(1) + place[1:]) < end.unsqueeze(1)
    stays = there & (ids[:, :-1] == drafts[at[:, 1:]])
    counts = 1 + stays.to(torch.int32).cumprod(dim=1).sum(dim=1)
    return ids, counts.to(torch.int32)


class PlaceSampler(RejectionSampler):  # type: ignore[misc] # vLLM's types are not read
    """Stands where vLLM's V2 runner has its `RejectionSampler`; logprobs, chunks and the rest are that one's."""

    def _verify(  # noqa: PLR0917 - vLLM's
        self,
        logits: Tensor,
        draft_logits: None,
        draft_sampled: Tensor,
        pos: Tensor,
        cu_num_logits: Tensor,
        idx_mapping: Tensor,
        idx_mapping_np: Any,
        expanded_idx_mapping: Tensor,
        expanded_local_pos: Tensor,
        seq_lens_upper_bound_np: Any,
        verify_draft_sampled: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Processed logits, [rows, drafts + 1] ids and [rows] how many of them count."""
        shown = self.sampler.logprobs_mode in PROCESSED_LOGPROBS_MODES
        sampled, processed = self.sampler.sample(
            logits,
            expanded_idx_mapping,
            idx_mapping,
            idx_mapping_np,
            pos,
            draft_sampled,
            expanded_local_pos,
            np.asarray(seq_lens_upper_bound_np),
            return_logprobs=shown,
        )
        return processed, *compare(sampled, verify_draft_sampled, cu_num_logits, self.num_speculative_steps + 1)
