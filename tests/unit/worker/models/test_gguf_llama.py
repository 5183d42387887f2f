import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file

from worker.lab.tiny import CONFIG, build_tiny_model
from worker.models.gguf_llama import GgufLlama, hf_name, unpermute
from worker.models.hf import write_folder

TO_GGUF = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
Q4_1 = GGMLQuantizationType.Q4_1


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp does to query and key projections (`LlamaModel.permute` in its convert_hf_to_gguf.py)."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_name(name: str) -> str:
    name = name.removesuffix(".weight")
    if name in TO_GGUF:
        return f"{TO_GGUF[name]}.weight"
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{TO_GGUF[part]}.weight"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def write_gguf(path: Path, tiny: Path, *, quantized: bool = False, pre: str = "smollm") -> None:
    """The tiny model as llama.cpp would write it."""
    writer = GGUFWriter(path, "llama")
    writer.add_vocab_size(CONFIG.vocab_size)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_rope_freq_base(CONFIG.rope_theta)
    writer.add_context_length(CONFIG.max_position_embeddings)

    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    special = {token["id"] for token in tokenizer["added_tokens"]}
    vocab = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocab)
    writer.add_token_types([3 if index in special else 1 for index in range(len(vocab))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(CONFIG.bos_token_id)
    writer.add_eos_token_id(CONFIG.eos_token_id)
    writer.add_pad_token_id(CONFIG.pad_token_id)
    writer.add_unk_token_id(CONFIG.eos_token_id)
    writer.add_chat_template(json.loads((tiny / "tokenizer_config.json").read_text())["chat_template"])

    for name, weight in load_file(tiny / "model.safetensors").items():
        if "q_proj" in name or "k_proj" in name:
            heads = CONFIG.num_attention_heads if "q_proj" in name else CONFIG.num_key_value_heads
            weight = permute(weight, heads)  # noqa: PLW2901
        if quantized and weight.ndim == 2:
            writer.add_tensor(gguf_name(name), quantize(weight, Q4_1), raw_dtype=Q4_1)
        else:
            writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_what_llama_cpp_writes_comes_back_as_it_was(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny)
    llama = GgufLlama(tmp_path / "tiny.gguf")
    assert llama.config() == CONFIG
    back = tmp_path / "back"
    back.mkdir()
    write_folder(back, llama.config(), llama.tokenizer(), dict(llama.weights()))
    for file in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (back / file).read_text() == (tiny / file).read_text()
    expected, found = load_file(tiny / "model.safetensors"), load_file(back / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


def test_quantized_weights_are_those_that_llama_cpp_computes_with(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny, quantized=True)
    weights = dict(GgufLlama(tmp_path / "tiny.gguf").weights())
    original = load_file(tiny / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    np.testing.assert_array_equal(weights[name], dequantize(quantize(original[name], Q4_1), Q4_1))
    query = "model.layers.0.self_attn.q_proj.weight"  # permuted, then quantised row by row
    np.testing.assert_array_equal(weights[query], dequantize(quantize(original[query], Q4_1), Q4_1))
    assert all(weight.dtype == np.float32 for weight in weights.values())


@pytest.mark.parametrize(("heads", "head_dim"), [(9, 64), (3, 64), (1, 2)])
def test_unpermute_undoes_permute(heads: int, head_dim: int) -> None:
    weight = np.arange(heads * head_dim * 5, dtype=np.float32).reshape(heads * head_dim, 5)
    np.testing.assert_array_equal(unpermute(permute(weight, heads), heads), weight)


def test_names() -> None:
    assert hf_name("blk.29.attn_output.weight") == "model.layers.29.self_attn.o_proj.weight"
    assert hf_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(ValueError, match=r"unknown tensor: blk\.0\.attn_q\.bias"):
        hf_name("blk.0.attn_q.bias")


def test_another_tokenizer_is_refused(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny, pre="llama-bpe")
    with pytest.raises(ValueError, match="unknown kind of tokenizer"):
        GgufLlama(tmp_path / "tiny.gguf").tokenizer()


def test_another_model_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "bert.gguf", "bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match="does not hold a Llama"):
        GgufLlama(tmp_path / "bert.gguf")
