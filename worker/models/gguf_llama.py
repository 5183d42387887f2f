"""A Llama in llama.cpp's GGUF format, as a Hugging Face model: pure conversion, it writes nothing.

GGUF's keys and tensor names are those of llama.cpp's `gguf` package (`gguf/constants.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, TokenType
from gguf.quants import dequantize
from numpy.typing import NDArray

from worker.models.hf import BytePairTokenizer, LlamaConfig

_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufLlama:
    """An open GGUF file that holds a Llama with a byte-level BPE tokenizer.

    Every method raises `ValueError` where the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; only what is asked for is read."""
        self._reader = GGUFReader(path)
        if self._value("general.architecture") != "llama":
            raise ValueError("the GGUF file does not hold a Llama")

    def config(self) -> LlamaConfig:
        """The shape of the model."""
        hidden = self._value("llama.embedding_length")
        heads = self._value("llama.attention.head_count")
        return LlamaConfig(
            vocab_size=self._value("llama.vocab_size"),
            hidden_size=hidden,
            intermediate_size=self._value("llama.feed_forward_length"),
            num_hidden_layers=self._value("llama.block_count"),
            num_attention_heads=heads,
            num_key_value_heads=self._value("llama.attention.head_count_kv"),
            head_dim=hidden // heads,
            rms_norm_eps=_shortest(self._value("llama.attention.layer_norm_rms_epsilon")),
            rope_theta=_shortest(self._value("llama.rope.freq_base")),
            max_position_embeddings=self._value("llama.context_length"),
            tie_word_embeddings=all(tensor.name != "output.weight" for tensor in self._reader.tensors),
            bos_token_id=self._value("tokenizer.ggml.bos_token_id"),
            eos_token_id=self._value("tokenizer.ggml.eos_token_id"),
            pad_token_id=self._value("tokenizer.ggml.padding_token_id"),
        )

    def tokenizer(self) -> BytePairTokenizer:
        """The tokenizer, with the file's own chat template."""
        kind = (self._value("tokenizer.ggml.model"), self._value("tokenizer.ggml.pre"))
        if kind != ("gpt2", "smollm"):  # byte-level BPE; numbers split into digits
            raise ValueError(f"the GGUF file has an unknown kind of tokenizer: {kind}")
        tokens = self._value("tokenizer.ggml.tokens")
        types = self._value("tokenizer.ggml.token_type")
        return BytePairTokenizer(
            tokens=tokens,
            merges=[_pair(merge) for merge in self._value("tokenizer.ggml.merges")],
            special=[token for token, kind in zip(tokens, types, strict=True) if kind == TokenType.CONTROL],
            bos=tokens[self._value("tokenizer.ggml.bos_token_id")],
            eos=tokens[self._value("tokenizer.ggml.eos_token_id")],
            pad=tokens[self._value("tokenizer.ggml.padding_token_id")],
            unk=tokens[self._value("tokenizer.ggml.unknown_token_id")],
            chat_template=self._value("tokenizer.chat_template"),
            model_max_length=self._value("llama.context_length"),
        )

    def weights(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each tensor under its Hugging Face name; matrices are (out, in), norms (hidden,)."""
        heads = {
            "attn_q": self._value("llama.attention.head_count"),
            "attn_k": self._value("llama.attention.head_count_kv"),
        }
        for tensor in self._reader.tensors:
            weight = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            part = _part(tensor.name)
            if part in heads:
                weight = unpermute(weight, heads[part])
            yield hf_name(tensor.name), np.ascontiguousarray(weight)

    def _value(self, key: str) -> Any:
        field = self._reader.get_field(key)
        if field is None:
            raise ValueError(f"the GGUF file lacks {key}")
        return field.contents()


def hf_name(gguf_name: str) -> str:
    """What Hugging Face's Llama calls a GGUF tensor.

    `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`.
    """
    part = _part(gguf_name)
    if part in _OUTER:
        return f"{_OUTER[part]}.weight"
    if part in _LAYER:
        return f"model.layers.{gguf_name.split('.')[1]}.{_LAYER[part]}.weight"
    raise ValueError(f"the GGUF file has an unknown tensor: {gguf_name}")


def unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's order of the rows of a query or key projection, (heads * head_dim, hidden).

    Rotary embeddings turn pairs of a head's dimensions. llama.cpp keeps the two of a pair side by side
    (0 and 1), Hugging Face half a head apart (0 and head_dim / 2).
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _part(gguf_name: str) -> str:
    """`attn_q` of `blk.3.attn_q.weight`."""
    return gguf_name.removesuffix(".weight").rpartition(".")[2]


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")  # a space inside a token is spelled Ġ, so there is only this one
    return left, right


def _shortest(value: float) -> float:
    """A float32 as the decimal it was written as: 9.999999747378752e-06 is 1e-05."""
    return float(str(np.float32(value)))
