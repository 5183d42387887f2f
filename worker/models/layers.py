"""A Llama with some of its decoder layers left out: a drafter that needs no training and no download of its own."""

import json
import re
import shutil
from collections.abc import Iterable, Set
from pathlib import Path

from safetensors import safe_open

from worker.models.hf import WEIGHTS, write_weights

# What a drafter must share with its target: the ids mean the same, and end a text alike.
_SHARED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def without_layers(names: Iterable[str], removed: Set[int]) -> dict[str, str]:
    """The tensors that stay, in their order, each with its new name: the layers left are numbered without gaps.

    Args:
        names: the names of all tensors of a Llama, as in its Hugging Face folder.
        removed: the layers to leave out, counted from 0.

    Raises:
        ValueError: a layer to leave out is not there.
    """
    layers = {name: _LAYER.fullmatch(name) for name in names}
    there = {int(match[1]) for match in layers.values() if match}
    if missing := removed - there:
        raise ValueError(f"cannot leave out layers {sorted(missing)} of a model with layers {sorted(there)}")
    numbers = {old: new for new, old in enumerate(sorted(there - removed))}
    kept = {}
    for name, match in layers.items():
        if match is None:
            kept[name] = name
        elif (old := int(match[1])) in numbers:
            kept[name] = f"model.layers.{numbers[old]}.{match[2]}"
    return kept


def write_without_layers(source: Path, folder: Path, removed: Set[int]) -> None:
    """Write the Llama in `source`, some of its layers left out, into `folder`, which exists.

    Args:
        source: a model as `hf.write_folder` writes it; other files in it are not copied.
        folder: the tokenizer in it is the same, to the byte.
        removed: the layers to leave out, counted from 0.

    Raises:
        ValueError: a layer to leave out is not there.
        OSError: a file cannot be read or written.
    """
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] -= len(removed)
    (folder / "config.json").write_text(f"{json.dumps(config, indent=1)}\n", encoding="utf-8")
    for name in _SHARED:
        shutil.copyfile(source / name, folder / name)
    with safe_open(source / WEIGHTS, framework="np") as tensors:
        kept = without_layers(tensors.keys(), removed)
        write_weights(folder, {new: tensors.get_tensor(old) for old, new in kept.items()})
