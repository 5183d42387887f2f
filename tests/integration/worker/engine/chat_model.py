"""What chats need: tokens that end thoughts, a template that shows what it was given, an adapter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from worker.lab.tiny import CONFIG, VOCABULARY, build_tokenizer

#: The last two tokens of the vocabulary, renamed.
THINK, END_OF_THOUGHT = VOCABULARY - 2, VOCABULARY - 1
#: A bias by which JSON comes to an end: the tokens of a quote, a closing brace and a closing bracket.
SOON_CLOSED = {str(build_tokenizer().tokens.index(character)): 10 for character in '"}]'}
#: A template that reads tools and an argument; `{{ raise_exception(...) }}` is what real ones refuse rows with.
TEMPLATE = (
    "{% if style is defined %}({{ style }}){% endif %}"
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' and not message.content %}{{ raise_exception('an empty tool message') }}{% endif %}"
    "<|im_start|>{{ message.role }}: {{ message.content }}<|im_end|>"
    "{% endfor %}<|im_start|>"
)
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"day": {"enum": ["mon", "tue"]}, "hot": {"type": "boolean"}},
            "required": ["day", "hot"],
            "additionalProperties": False,
        },
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}


def let_it_think(model: Path) -> Path:
    """Give the model in this folder the tokens `<think>` and `</think>`; returns the folder."""
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for token, number in (("<think>", THINK), ("</think>", END_OF_THOUGHT)):
        old = next(name for name, its in vocabulary.items() if its == number)
        del vocabulary[old]
        vocabulary[token] = number
        tokenizer["model"]["merges"] = [
            pair
            for pair in tokenizer["model"]["merges"]
            if "".join(pair if isinstance(pair, list) else pair.split(" ")) != old
        ]
        tokenizer["added_tokens"].append(
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": False,
            }
        )
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return model


def build_adapter(folder: Path, rank: int = 8) -> Path:
    """Write a LoRA adapter for the tiny model, strong enough to change every text; returns the folder."""
    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 4 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "o_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    random = np.random.default_rng(0)
    queries = CONFIG.num_attention_heads * CONFIG.head_dim
    sizes = {"q_proj": (CONFIG.hidden_size, queries), "o_proj": (queries, CONFIG.hidden_size)}
    weights = {}
    for layer in range(CONFIG.num_hidden_layers):
        for name, (inputs, outputs) in sizes.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = random.standard_normal((rank, inputs), np.float32) / 8
            weights[f"{prefix}.lora_B.weight"] = random.standard_normal((outputs, rank), np.float32) / 8
    save_file(weights, folder / "adapter_model.safetensors")
    return folder
