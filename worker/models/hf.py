"""Hugging Face model folders: which files they have and what stands in them.

Written by hand rather than through transformers, so that making a model needs neither torch nor seconds of
imports, and so that the files hold nothing but what is stated here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

#: The file of a folder that holds the tensors.
WEIGHTS = "model.safetensors"

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The shape of a Llama; each field is named as in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int

    def to_json(self) -> dict[str, Any]:
        """The content of config.json, for float32 weights."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "float32",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            **asdict(self),
        }

    def generation_json(self) -> dict[str, Any]:
        """The content of generation_config.json: where a text ends.

        It names no sampling parameter, because an engine takes those for the defaults of rows that set none.
        """
        ids = {"bos_token_id": self.bos_token_id, "eos_token_id": self.eos_token_id}
        return {**ids, "pad_token_id": self.pad_token_id}


@dataclass(frozen=True, slots=True)
class BytePairTokenizer:
    """A byte-level BPE tokenizer that splits numbers into digits, as SmolLM's does.

    Attributes:
        tokens: each token at its id, in GPT-2's printable spelling of bytes (a space is `Ġ`).
        merges: the pairs of tokens that are joined, first things first.
        special: the tokens found whole in a prompt and left out of an answer's text.
        bos, eos, pad, unk: four of the special ones. Nothing is ever read as `unk`: a byte that is not among
            the tokens is dropped, because a special token in its place would mislead the model more.
        chat_template: Jinja, as transformers defines it.
        model_max_length: how many tokens a text can have.
    """

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]]
    special: Sequence[str]
    bos: str
    eos: str
    pad: str
    unk: str
    chat_template: str
    model_max_length: int

    def to_json(self) -> dict[str, Any]:
        """The content of tokenizer.json."""
        vocab = {token: index for index, token in enumerate(self.tokens)}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        digits = {"type": "Digits", "individual_digits": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": vocab[token], "content": token, **plain} for token in self.special],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": [list(pair) for pair in self.merges],
            },
        }

    def config_json(self) -> dict[str, Any]:
        """The content of tokenizer_config.json."""
        return {
            # The class that takes tokenizer.json as it is; others rebuild parts of it in their own way.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos,
            "eos_token": self.eos,
            "pad_token": self.pad,
            "unk_token": self.unk,
            "model_max_length": self.model_max_length,
            "clean_up_tokenization_spaces": False,
            "chat_template": self.chat_template,
        }


def write_folder(folder: Path, config: LlamaConfig, tokenizer: BytePairTokenizer, weights: Weights) -> None:
    """Write a model that transformers and vLLM load from `folder`, which exists.

    Raises:
        OSError: the files cannot be written (disk full, no permission, ...).
    """
    _write_json(folder / "config.json", config.to_json())
    _write_json(folder / "generation_config.json", config.generation_json())
    _write_json(folder / "tokenizer.json", tokenizer.to_json())
    _write_json(folder / "tokenizer_config.json", tokenizer.config_json())
    write_weights(folder, weights)


def write_weights(folder: Path, weights: Weights) -> None:
    """Write the tensors of a model's folder, readable by whom its config.json is.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder / WEIGHTS
    try:
        # transformers asks for the metadata: whose layout of tensors this is.
        save_file(dict(weights), path, metadata={"format": "pt"})
    except SafetensorError as error:  # what its Rust code makes of an I/O error
        raise OSError(str(error)) from error
    path.chmod((folder / "config.json").stat().st_mode)  # save_file leaves it readable by its owner only


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")
