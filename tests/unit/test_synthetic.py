from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import HEAVY, TINY, Shape, build_pair
from tinymodel import VOCABULARY, build_tiny_model
from transformers import AutoTokenizer, LlamaForCausalLM

PROMPTS = ["What is the capital of France?", "Hi", "1234 + 5678 =", "The License grants you"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build_pair(tmp_path_factory.mktemp("pair"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def load(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder)


def logits(folder: Path) -> torch.Tensor:
    """What the model says after each of 8 x 48 random tokens, as (384, vocabulary)."""
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (8, 48))
    with torch.inference_mode():
        return load(folder)(torch.from_numpy(ids)).logits.flatten(0, 1)


@pytest.mark.parametrize("shape", [TINY, HEAVY])
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


def test_arguments_decide_every_byte(pair: tuple[Path, Path], tmp_path: Path) -> None:
    first = [contents(folder) for folder in pair]
    assert first == [contents(folder) for folder in build_pair(tmp_path / "again", seed=0)]
    others = [contents(folder) for folder in build_pair(tmp_path / "other", seed=1)]
    for one, other in zip(first, others, strict=True):
        assert {name for name in one if one[name] != other[name]} == {"model.safetensors"}


def test_one_tokenizer_for_all(pair: tuple[Path, Path], tmp_path: Path) -> None:
    tiny = contents(build_tiny_model(tmp_path))
    for folder in pair:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert contents(folder)[name] == tiny[name]


def test_without_noise_a_wider_and_deeper_target_has_the_drafts_logits(tmp_path: Path) -> None:
    target, draft = map(logits, build_pair(tmp_path, noise=0))
    assert target.std() > 1
    torch.testing.assert_close(target, draft, rtol=0, atol=1e-4)


def test_noise_decides_how_often_they_agree(pair: tuple[Path, Path], tmp_path: Path) -> None:
    def agreement(folders: tuple[Path, Path]) -> float:
        target, draft = map(logits, folders)
        return (target.argmax(-1) == draft.argmax(-1)).float().mean().item()

    assert 0.6 < agreement(pair) < 0.9
    assert agreement(build_pair(tmp_path, noise=0.4)) < 0.6


def test_each_prompt_has_a_text_of_its_own_that_goes_on(pair: tuple[Path, Path]) -> None:
    target, tokenizer = load(pair[0]), AutoTokenizer.from_pretrained(pair[0])
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            text = target.generate(**ids, max_new_tokens=48, do_sample=False)[0, ids["input_ids"].shape[1] :]
        texts.append(tuple(text.tolist()))
        assert len(set(texts[-1][-12:])) > 4
    assert len(set(texts)) == len(PROMPTS)
