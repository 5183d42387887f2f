import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

from worker.lab import pairs
from worker.lab.pairs import HEAVY, TINY, PairError, Shape, build_pair, pair, parameters, shape_of
from worker.lab.tiny import VOCABULARY, build_tiny_model

PROMPTS = ["What is the capital of France?", "Hi", "1234 + 5678 =", "The License grants you"]


@pytest.fixture(scope="module")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_pair(tmp_path_factory.mktemp("pair"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def load(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder)


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def logits(folder: Path) -> torch.Tensor:
    """What the model says after each of 8 x 48 random tokens, as (384, vocabulary)."""
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (8, 48))
    with torch.inference_mode():
        return load(folder)(torch.from_numpy(ids)).logits.flatten(0, 1)


@pytest.mark.parametrize("shape", [TINY, HEAVY, shape_of(105, 27), shape_of(2000, 1999)])
def test_two_ranks_can_share_either_target(shape: Shape) -> None:
    draft, target = shape.draft, shape.target
    for config in (draft, target):
        assert config.num_attention_heads % 2 == 0
        assert (config.vocab_size, config.max_position_embeddings) == (VOCABULARY, 2048)
    assert target.num_key_value_heads % 2 == 0
    # A query head of the draft must find, in the target, the key head it had.
    assert target.head_dim == draft.head_dim
    assert target.num_attention_heads * draft.num_key_value_heads == (
        draft.num_attention_heads * target.num_key_value_heads
    )


def test_arguments_decide_every_byte(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    first = [contents(folder) for folder in tiny_pair]
    assert first == [contents(folder) for folder in build_pair(tmp_path / "again", seed=0)]
    others = [contents(folder) for folder in build_pair(tmp_path / "other", seed=1)]
    for one, other in zip(first, others, strict=True):
        assert {name for name in one if one[name] != other[name]} == {"model.safetensors"}


def test_one_tokenizer_for_all(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    tiny = contents(build_tiny_model(tmp_path))
    for folder in tiny_pair:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert contents(folder)[name] == tiny[name]


def test_without_noise_a_wider_and_deeper_target_has_the_drafts_logits(tmp_path: Path) -> None:
    target, draft = map(logits, build_pair(tmp_path, noise=0))
    assert target.std() > 1
    torch.testing.assert_close(target, draft, rtol=0, atol=1e-4)


def test_noise_decides_how_often_they_agree(tiny_pair: tuple[Path, Path], tmp_path: Path) -> None:
    def agreement(folders: tuple[Path, Path]) -> float:
        target, draft = map(logits, folders)
        return (target.argmax(-1) == draft.argmax(-1)).float().mean().item()

    assert 0.6 < agreement(tiny_pair) < 0.9
    assert agreement(build_pair(tmp_path, noise=0.4)) < 0.6


def test_each_prompt_has_a_text_of_its_own_that_goes_on(tiny_pair: tuple[Path, Path]) -> None:
    target, tokenizer = load(tiny_pair[0]), AutoTokenizer.from_pretrained(tiny_pair[0])
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            text = target.generate(**ids, max_new_tokens=48, do_sample=False)[0, ids["input_ids"].shape[1] :]
        texts.append(tuple(text.tolist()))
        assert len(set(texts[-1][-12:])) > 4
    assert len(set(texts)) == len(PROMPTS)


@pytest.mark.parametrize("sizes", [(2, 2), (5, 2), (77, 16), (105, 27), (105, 8.7), (300, 27), (2000, 2)])
def test_a_pair_of_any_sizes(sizes: tuple[float, float]) -> None:
    shape = shape_of(*sizes)
    for config, wanted in zip((shape.target, shape.draft), sizes, strict=True):
        assert parameters(config) / 1e6 == pytest.approx(wanted, rel=0.03)
        assert config.head_dim == 64
        assert config.hidden_size % 256 == config.intermediate_size % 64 == 0
    # The target holds the draft.
    assert shape.target.hidden_size >= shape.draft.hidden_size
    assert shape.target.intermediate_size >= shape.draft.intermediate_size
    assert shape.target.num_hidden_layers >= shape.draft.num_hidden_layers


def test_a_pair_by_its_name_is_built_once(tmp_path: Path) -> None:
    said: list[str] = []
    target, draft = pair("synthetic:5/2,noise=0", tmp_path, say=said.append)
    assert said == [f"building synthetic-5M-2M-noise-0-v1, once, in {tmp_path} (28 MB)"]
    assert sum(weight.size for weight in weights(target).values()) == parameters(shape_of(5, 2).target)
    assert sum(weight.size for weight in weights(draft).values()) == parameters(shape_of(5, 2).draft)
    torch.testing.assert_close(logits(target), logits(draft), rtol=0, atol=1e-4)
    assert pair("synthetic:5/2,noise=0.0", tmp_path, say=said.append) == (target, draft)
    assert len(said) == 1
    other, _ = pair("synthetic:5/2", tmp_path, say=said.append)
    assert other.parent.name == "synthetic-5M-2M-noise-0.1-v1"


def test_the_embedded_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "embedded_model", lambda cache, say: cache / "model")
    monkeypatch.setattr(pairs, "embedded_drafter", lambda cache, say: cache / "drafter")
    assert pair("embedded", tmp_path) == (tmp_path / "model", tmp_path / "drafter")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' names no pair: it is `embedded`, or `synthetic:TARGET/DRAFT[,noise=NUMBER]`"),
        ("synthetic:105", "'synthetic:105' names no pair"),
        ("synthetic:1.0.5/2", "'synthetic:1.0.5/2' names no pair"),
        ("synthetic:105/27,noise=", "'synthetic:105/27,noise=' names no pair"),
        ("synthetic:27/105", "a synthetic pair of 27 and 105 million parameters cannot be made: the draft may have 2"),
        ("synthetic:105/1", "a synthetic pair of 105 and 1 million parameters cannot be made"),
        ("synthetic:9000/2", "a synthetic pair of 9000 and 2 million parameters cannot be made"),
    ],
)
def test_a_text_that_names_no_pair(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PairError, match=f"^{re.escape(message)}"):
        pair(text, tmp_path)
    assert not list(tmp_path.iterdir())
