"""Pairs of a target and a draft model: the embedded one, and ones with random weights of any sizes and agreement.

The draft of a synthetic pair is a small random Llama. The target holds the draft, padded in width and followed by
more layers, and what it has beyond the draft writes into the residual stream only as strongly as `noise` says. So
`noise` decides how often the draft's choice is the target's: at 0 the two have the same logits.

Agreement (greedy, 8 prompts, 48 tokens each, the draft fed with the target's text, seed 0) and what it makes in
tokens a cycle with 4 drafted. At 0.1, seeds 1 and 2 gave 0.77 to 0.81 in both shapes, and no text fell into a loop.

    noise                           0      0.05   0.1    0.2    0.4
    TINY    agreement               1      0.92   0.78   0.68   0.46
            tokens a cycle          5      4.2    3.2    2.6    1.7
    HEAVY   agreement               1      0.93   0.82   0.62   0.36
            tokens a cycle          5      4.2    3.4    2.3    1.5
    105/27  agreement                             0.77   0.62
"""

import logging
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.lab.tiny import CONFIG, build_tiny_model, build_tokenizer, random_weights
from worker.models import store
from worker.models.embedded import embedded_drafter, embedded_model
from worker.models.hf import LlamaConfig, write_folder
from worker.models.store import Say

Matrix = NDArray[np.float32]

#: How strongly the target differs from the draft, unless told.
NOISE = 0.1
#: Random logits are all alike; those of a trained model are not. With this factor the target's first choice has a
#: probability of 0.4 or so, and sampling at temperature 1 accepts 0.85 of the drafts at `NOISE`.
SHARPNESS = 4.0


#: The sizes that can be asked for, in millions of parameters: below, no shape comes close; above, float32 weights fill
#: the memory of the machines that this is for.
LEAST_M, MOST_M = 2.0, 2000.0
#: Grows whenever what is written changes: an old cache is never taken for new.
_VERSION = 1
_TINY_FOLDER = f"virtual-v{_VERSION}"
_HEAD, _UNIT, _MOST_LAYERS = 64, 64, 48
_FORM = "synthetic:TARGET/DRAFT[,noise=NUMBER]"
_SYNTHETIC = re.compile(r"synthetic:(?P<target>[\d.]+)/(?P<draft>[\d.]+)(?:,noise=(?P<noise>[\d.]+))?")

_log = logging.getLogger(__name__)


class PairError(Exception):
    """A text names no pair; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a pair; both models have the same vocabulary, head size, query heads per key head and context."""

    draft: LlamaConfig
    target: LlamaConfig


def _padded(draft: LlamaConfig, target: LlamaConfig) -> Shape:
    """The pair in which `target` holds `draft`."""
    # Padding makes the mean square smaller; the norm's constant must shrink with it.
    eps = draft.rms_norm_eps * draft.hidden_size / target.hidden_size
    return Shape(draft, replace(target, rms_norm_eps=eps))


def _even(hidden_size: int, intermediate_size: int, layers: int) -> LlamaConfig:
    """A model that two ranks can share: heads of 64 (vLLM's CPU attention takes them), two of queries for one of keys.

    Args:
        hidden_size: a multiple of 256.
        intermediate_size: of the MLP.
        layers: how many.
    """
    return replace(
        CONFIG,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // _HEAD,
        num_key_value_heads=hidden_size // _HEAD // 2,
        head_dim=_HEAD,
    )


_TINY_TARGET = replace(
    CONFIG,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
)
#: 0.72 and 0.14 million parameters: a step takes no time beside what an engine spends on it.
TINY = _padded(CONFIG, _TINY_TARGET)
#: 77 and 16 million parameters (306 and 65 MB, built in 2 s), for what is measured in time. On one quiet core, in
#: vLLM: 8 requests with 4 drafts each are verified in 68 ms and drafted in 39 ms.
HEAVY = _padded(_even(512, 2048, 4), _even(1024, 3072, 6))


def parameters(config: LlamaConfig) -> int:
    """How many numbers the model's weights are."""
    hidden, heads = config.hidden_size, config.num_attention_heads + config.num_key_value_heads
    layer = 2 * hidden * config.head_dim * heads + 3 * hidden * config.intermediate_size + 2 * hidden
    return 2 * config.vocab_size * hidden + config.num_hidden_layers * layer + hidden


def shape_of(target_m: float, draft_m: float) -> Shape:
    """The shape of a pair of these sizes.

    Args:
        target_m: millions of the target's parameters.
        draft_m: of the draft's.

    Raises:
        PairError: there is no such pair.
    """
    if not LEAST_M <= draft_m <= target_m <= MOST_M:
        raise PairError(
            f"a synthetic pair of {target_m:g} and {draft_m:g} million parameters cannot be made: the draft may have "
            f"{LEAST_M:g} and more, the target as many or more, up to {MOST_M:g}"
        )
    draft = _closest(draft_m * 1e6, _even(256, _UNIT, 2))
    return _padded(draft, _closest(target_m * 1e6, draft))


def _closest(wanted: float, least: LlamaConfig) -> LlamaConfig:
    """A model of `wanted` parameters, none of its sizes below those of `least`.

    Of those that come within 3 %, or else of the closest, the one most like real small models: an MLP four times as
    wide as the residual stream, and a layer for each 128 of its width.
    """
    found = []
    for hidden in range(least.hidden_size, 4096 + 1, 256):
        for layers in range(least.num_hidden_layers, _MOST_LAYERS + 1):
            bare = parameters(_even(hidden, 0, layers))
            inner = round((wanted - bare) / (3 * hidden * layers) / _UNIT) * _UNIT
            config = _even(hidden, max(inner, least.intermediate_size), layers)
            off = abs(parameters(config) / wanted - 1)
            odd = abs(math.log(config.intermediate_size / (4 * hidden))) + abs(math.log(layers * 128 / hidden))
            found.append((max(off, 0.03), odd, hidden, config))
    return min(found, key=lambda one: one[:3])[3]


def pair(text: str, cache: Path | None = None, *, say: Say = _log.info) -> tuple[Path, Path]:
    """The folders of a pair's target and draft model, built first where they are missing.

    Args:
        text: `embedded`, or `synthetic:TARGET/DRAFT[,noise=NUMBER]` with sizes in millions of parameters, such as
            `synthetic:105/27` or `synthetic:105/27,noise=0.2`.
        cache: where built models are kept; by default `MINEDRAFT_CACHE_DIR` or this user's cache folder.
        say: is told, in one line each, what takes time.

    Raises:
        PairError: the text names no pair.
        ModelError: the models are not there and cannot be built.
    """
    cache = cache or store.default_cache()
    if text == "embedded":
        return embedded_model(cache, say=say), embedded_drafter(cache, say=say)
    target_m, draft_m, noise = _read(text)
    shape = shape_of(target_m, draft_m)
    name = f"synthetic-{target_m:g}M-{draft_m:g}M-noise-{noise:g}-v{_VERSION}"
    needs_bytes = 4 * (parameters(shape.target) + parameters(shape.draft))

    def build(folder: Path, _: Path) -> None:
        say(f"building {name}, once, in {cache} ({needs_bytes / 1e6:.0f} MB)")
        build_pair(folder, shape=shape, noise=noise)

    folder = store.obtain(cache, name, build, needs_bytes=needs_bytes + 10_000_000, say=say)
    return folder / "target", folder / "draft"


def tiny(cache: Path | None = None, *, say: Say = _log.info) -> Path:
    """The model that stands for both on imagined devices (`virtual.py`), built first where it is missing.

    Raises:
        ModelError: it cannot be built.
    """

    def build(folder: Path, _: Path) -> None:
        build_tiny_model(folder)

    return store.obtain(cache or store.default_cache(), _TINY_FOLDER, build, needs_bytes=10_000_000, say=say)


def _read(text: str) -> tuple[float, float, float]:
    """Both sizes and the noise of a synthetic pair."""
    found = _SYNTHETIC.fullmatch(text)
    try:
        if found is not None:
            return float(found["target"]), float(found["draft"]), float(found["noise"] or NOISE)
    except ValueError:  # digits and dots that are no number
        pass
    raise PairError(f"{text!r} names no pair: it is `embedded`, or `{_FORM}` with sizes in millions of parameters")


def build_pair(folder: Path, *, shape: Shape = TINY, noise: float = NOISE, seed: int = 0) -> tuple[Path, Path]:
    """Write `folder/target` and `folder/draft`, created when missing, and return them.

    The same arguments give the same files; the tokenizer is `worker.lab.tiny`'s, for all pairs.

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
