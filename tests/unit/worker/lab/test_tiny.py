import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from worker.lab import tiny

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tiny.build_tiny_model(tmp_path_factory.mktemp("tiny"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_seed_always_gives_the_same_model(tmp_path: Path) -> None:
    first = contents(tiny.build_tiny_model(tmp_path / "a"))
    again = contents(tiny.build_tiny_model(tmp_path / "deeper" / "b", seed=0))
    other = contents(tiny.build_tiny_model(tmp_path / "c", seed=1))
    assert sorted(first) == FILES
    assert first == again
    assert [name for name in FILES if first[name] != other[name]] == ["model.safetensors"]


def test_files_are_readable_by_all_who_may_read_the_folder(tmp_path: Path) -> None:
    folder = tiny.build_tiny_model(tmp_path)
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_no_sampling_defaults(tmp_path: Path) -> None:
    folder = tiny.build_tiny_model(tmp_path)
    config = json.loads((folder / "generation_config.json").read_text())
    assert config == {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}


@given(st.text())
def test_any_text_survives(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_and_digits(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_start|><|im_end|>").ids == [0, 1]
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"]
    assert tokenizer.decode([0, *tokenizer.encode("hi").ids, 1]) == "hi"
