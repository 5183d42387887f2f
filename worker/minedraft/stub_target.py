"""What a drafter has where vLLM expects the target model."""

from typing import Any

import torch
from torch import Tensor, nn


class StubTarget(nn.Module):  # type: ignore[misc] # torch's types are not read
    """No layers, no weights, no KV cache; its output is never looked at.

    It has a real `forward` all the same: vLLM's profiling, warm-up and graph capture call it.

    Args:
        hidden_size: of the target.
        dtype: of the target.
        device: that the runner computes on.
    """

    def __init__(self, hidden_size: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.model = nn.Module()
        self._output = torch.zeros((0, hidden_size), dtype=dtype, device=device)

    def forward(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        """[tokens, hidden_size] of anything."""
        return self._output.new_zeros((input_ids.shape[0], self._output.shape[1]))

    def compute_logits(self, hidden_states: Tensor) -> None:
        """No logits."""
