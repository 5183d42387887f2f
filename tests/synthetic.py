"""Pairs of a target and a draft model with random weights, for tests of speculative decoding.

The draft is a small random Llama. The target holds the draft, padded in width and followed by more layers, and
what it has beyond the draft writes into the residual stream only as strongly as `noise` says. So `noise` decides
how often the draft's choice is the target's: at 0 the two have the same logits.

Agreement (greedy, 8 prompts, 48 tokens each, the draft fed with the target's text, seed 0) and what it makes in
tokens a cycle with 4 drafted. At 0.1, seeds 1 and 2 gave 0.77 to 0.81 in both shapes, and no text fell into a loop.

    noise                           0      0.05   0.1    0.2    0.4
    TINY    agreement               1      0.92   0.78   0.68   0.46
            tokens a cycle          5      4.2    3.2    2.6    1.7
    HEAVY   agreement               1      0.93   0.82   0.62   0.36
            tokens a cycle          5      4.2    3.4    2.3    1.5
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tinymodel import CONFIG, build_tokenizer, random_weights

from worker.models.hf import LlamaConfig, write_folder

Matrix = NDArray[np.float32]

NOISE = 0.1
#: Random logits are all alike; those of a trained model are not. With this factor the target's first choice has a
#: probability of 0.4 or so, and sampling at temperature 1 accepts 0.85 of the drafts at `NOISE`.
SHARPNESS = 4.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a pair; both models have the same vocabulary, head size, query heads per key head and context."""

    draft: LlamaConfig
    target: LlamaConfig


def _grown(draft: LlamaConfig, *, hidden_size: int, intermediate_size: int, layers: int, heads: int) -> LlamaConfig:
    return replace(
        draft,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads * draft.num_key_value_heads // draft.num_attention_heads,
        # Padding makes the mean square smaller; the norm's constant must shrink with it.
        rms_norm_eps=draft.rms_norm_eps * draft.hidden_size / hidden_size,
    )


_HEAVY_DRAFT = replace(
    CONFIG,
    hidden_size=512,
    intermediate_size=2048,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
)
#: 0.72 and 0.14 million parameters: a step takes no time beside what an engine spends on it.
TINY = Shape(CONFIG, _grown(CONFIG, hidden_size=128, intermediate_size=256, layers=4, heads=4))
#: 77 and 16 million parameters (306 and 65 MB, built in 2 s), for what is measured in time. On one quiet core, in
#: vLLM: 8 requests with 4 drafts each are verified in 68 ms and drafted in 39 ms.
HEAVY = Shape(_HEAVY_DRAFT, _grown(_HEAVY_DRAFT, hidden_size=1024, intermediate_size=3072, layers=6, heads=16))


def build_pair(folder: Path, *, shape: Shape = TINY, noise: float = NOISE, seed: int = 0) -> tuple[Path, Path]:
    """Write `folder/target` and `folder/draft`, created when missing, and return them.

    The same arguments give the same files; the tokenizer is `tinymodel`'s, for all pairs.

    Args:
        folder: gets the two models.
        shape: how big they are.
        noise: how strongly the target differs from the draft; 0 is not at all.
        seed: another one gives other models, that is: other texts.
    """
    draft = dict(random_weights(shape.draft, seed))
    draft["lm_head.weight"] *= np.float32(SHARPNESS)
    extra = random_weights(shape.target, seed + 1)
    # A norm divides by the root mean square, which padding makes smaller.
    norm = np.float32(shape.draft.hidden_size / shape.target.hidden_size) ** 0.5
    target = {
        name: weight * norm if weight.ndim == 1 else _around(draft.get(name), name, weight, noise)
        for name, weight in extra.items()
    }
    models = {"target": (shape.target, target), "draft": (shape.draft, draft)}
    for part, (config, weights) in models.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        write_folder(folder / part, config, build_tokenizer(), weights)
    return folder / "target", folder / "draft"


def _around(draft: Matrix | None, name: str, extra: Matrix, noise: float) -> Matrix:
    """A matrix of the target, (out, in), that does what the draft's does, and around it something random."""
    if name.endswith(("o_proj.weight", "down_proj.weight")):  # these write into the residual stream
        matrix = extra * np.float32(noise)
    else:
        matrix = extra.copy()
        if draft is not None:
            matrix[: draft.shape[0]] = 0  # what the draft computes, it computes from nothing new
    if draft is not None:
        matrix[: draft.shape[0], : draft.shape[1]] = draft
    return matrix
