"""A tiny Llama with random weights that vLLM loads in a moment.

It answers nonsense, but each prompt gets its own, and always the same one at temperature 0.
"""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from worker.models.hf import BytePairTokenizer, LlamaConfig, Weights, write_folder

#: What its tokens are learnt from: some English.
TEXT = Path(__file__).parent / "data" / "apache-2.0.txt"
#: How many tokens it knows.
VOCABULARY = 512
EOS, BOS = "<|im_end|>", "<|im_start|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
#: 0.14 million parameters.
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,  # the smallest that vLLM's CPU attention takes
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=2048,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=1,
)


def build_tiny_model(directory: Path, *, seed: int = 0) -> Path:
    """Write the model of this seed into `directory`, created when missing, and return it.

    The same seed gives the same files; the tokenizer is the same for all seeds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_folder(directory, CONFIG, build_tokenizer(), random_weights(CONFIG, seed))
    return directory


def build_tokenizer() -> BytePairTokenizer:
    """Learn the tokenizer, always the same one (a tenth of a second)."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # every byte: any text survives
        show_progress=False,
    )
    trained.train_from_iterator([TEXT.read_text(encoding="utf-8")], trainer)
    model = json.loads(trained.to_str())["model"]
    return BytePairTokenizer(
        tokens=sorted(model["vocab"], key=model["vocab"].get),
        merges=[tuple(pair) for pair in model["merges"]],
        special=[BOS, EOS],
        bos=BOS,
        eos=EOS,
        pad=EOS,
        unk=EOS,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONFIG.max_position_embeddings,
    )


def random_weights(config: LlamaConfig, seed: int) -> Weights:
    """Matrices that keep the size of what passes through them, so that every token of the prompt counts."""
    random = np.random.default_rng(seed)
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    shapes = {"model.embed_tokens": (config.vocab_size, hidden), "lm_head": (config.vocab_size, hidden)}
    norms = ["model.norm"]
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        norms += [f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm"]
        shapes |= {
            f"{prefix}.self_attn.q_proj": (queries, hidden),
            f"{prefix}.self_attn.k_proj": (keys, hidden),
            f"{prefix}.self_attn.v_proj": (keys, hidden),
            f"{prefix}.self_attn.o_proj": (hidden, queries),
            f"{prefix}.mlp.gate_proj": (inner, hidden),
            f"{prefix}.mlp.up_proj": (inner, hidden),
            f"{prefix}.mlp.down_proj": (hidden, inner),
        }
    weights = {f"{name}.weight": np.ones(hidden, np.float32) for name in norms}
    for name, (rows, columns) in shapes.items():
        weights[f"{name}.weight"] = random.standard_normal((rows, columns), np.float32) / np.float32(columns) ** 0.5
    return weights
