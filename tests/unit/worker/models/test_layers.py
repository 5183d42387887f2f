import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from worker.lab.tiny import CONFIG, build_tokenizer, random_weights
from worker.models.hf import write_folder
from worker.models.layers import without_layers, write_without_layers

LAYERS = 6
SHARED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of six layers, and files beside it that are no part of a model."""
    folder = tmp_path_factory.mktemp("source")
    config = replace(CONFIG, num_hidden_layers=LAYERS)
    write_folder(folder, config, build_tokenizer(), random_weights(config, seed=0))
    (folder / "manifest.json").write_text("{}")
    (folder / "README.md").write_text("")
    return folder


def test_later_layers_move_up_and_the_rest_stays() -> None:
    names = ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]
    names += [f"model.layers.{layer}.{part}" for layer in (10, 0, 2, 1) for part in ("mlp.up_proj.weight", "a.b")]
    assert without_layers(names, {1, 2}) == {
        "lm_head.weight": "lm_head.weight",
        "model.embed_tokens.weight": "model.embed_tokens.weight",
        "model.norm.weight": "model.norm.weight",
        "model.layers.10.mlp.up_proj.weight": "model.layers.1.mlp.up_proj.weight",
        "model.layers.10.a.b": "model.layers.1.a.b",
        "model.layers.0.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.a.b": "model.layers.0.a.b",
    }


@given(st.integers(1, 40).flatmap(lambda layers: st.tuples(st.just(layers), st.sets(st.integers(0, layers - 1)))))
def test_layers_are_numbered_from_0_in_their_old_order(case: tuple[int, set[int]]) -> None:
    layers, removed = case
    kept = without_layers([f"model.layers.{layer}.w" for layer in range(layers)], removed)
    assert list(kept) == [f"model.layers.{layer}.w" for layer in range(layers) if layer not in removed]
    assert list(kept.values()) == [f"model.layers.{layer}.w" for layer in range(layers - len(removed))]


def test_a_layer_that_is_not_there_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match=r"^cannot leave out layers \[2, 7\] of a model with layers \[0, 1\]$"):
        without_layers(["model.layers.0.w", "model.layers.1.w", "model.norm.weight"], {1, 2, 7})


def test_a_folder_without_two_of_its_six_layers(source: Path, tmp_path: Path) -> None:
    write_without_layers(source, tmp_path, {1, 4})
    before, after = load_file(source / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    expected = {name: weight for name, weight in before.items() if ".layers." not in name}
    for new, old in enumerate((0, 2, 3, 5)):
        prefix = f"model.layers.{old}."
        layer = {name.removeprefix(prefix): weight for name, weight in before.items() if name.startswith(prefix)}
        assert len(layer) == 9
        expected |= {f"model.layers.{new}.{part}": weight for part, weight in layer.items()}
    assert after.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(after[name], weight, err_msg=name)
        assert after[name].dtype == np.float32


def test_the_rest_of_the_folder(source: Path, tmp_path: Path) -> None:
    write_without_layers(source, tmp_path, {1, 4})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["config.json", "model.safetensors", *SHARED])
    for name in SHARED:
        assert (tmp_path / name).read_bytes() == (source / name).read_bytes()
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (source, tmp_path))
    assert after == before | {"num_hidden_layers": LAYERS - 2}
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}  # transformers asks for it
    assert int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little") % 8 == 0  # tensors are aligned
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
