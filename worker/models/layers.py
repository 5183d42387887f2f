"""A Llama with some of its decoder layers left out: a drafter that needs no training and no download of its own.

The weights go from file to file, one tensor at a time, in the safetensors layout: the header's size in 8 bytes
(little-endian), the header (JSON: for each tensor its type, its shape, where its bytes begin and end), the bytes.
"""

import json
import re
import shutil
import struct
from collections.abc import Iterable, Set
from pathlib import Path

# What a drafter must share with its target: the ids mean the same, and end a text alike.
_SHARED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_METADATA = "__metadata__"


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
    _copy_weights(source / "model.safetensors", folder / "model.safetensors", removed)


def _copy_weights(source: Path, target: Path, removed: Set[int]) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        (size,) = struct.unpack("<Q", old.read(8))
        header = json.loads(old.read(size))
        metadata = header.pop(_METADATA)
        names = without_layers(header, removed)
        lengths = {name: end - begin for name in names for begin, end in [header[name]["data_offsets"]]}
        shorter, begin = {_METADATA: metadata}, 0
        for name, new_name in names.items():
            shorter[new_name] = header[name] | {"data_offsets": [begin, begin + lengths[name]]}
            begin += lengths[name]
        encoded = json.dumps(shorter).encode()
        encoded += b" " * (-len(encoded) % 8)  # tensors begin at a multiple of 8 bytes
        new.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in names:
            old.seek(8 + size + header[name]["data_offsets"][0])
            new.write(old.read(lengths[name]))
