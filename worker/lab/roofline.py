"""What a pass costs on devices that nobody here has: a roofline model from data sheets and model configurations.

Every number is either from a data sheet, from a model's `config.json`, or one of the constants below with its reason.
The result is a `PassCost`, an estimate: it is right about what limits a pass, and some ten percent off in how much.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.lab.profile import PassCost

#: Of the data sheet's bandwidth, what reading weights reaches: streaming benchmarks reach 0.85 to 0.9 on HBM and GDDR6,
#: matrix products of few rows somewhat less.
BANDWIDTH_SHARE = 0.8
#: Of the data sheet's dense FLOPS, what the products of a few hundred tokens reach: cuBLAS reaches 0.6 to 0.75 of an
#: A100's or H100's peak on large square products; a pass of a decoding batch is at the lower end.
FLOPS_SHARE = 0.6
#: Of the link's bandwidth, what an all-reduce reaches (NCCL's own tests: 0.7 to 0.8).
LINK_SHARE = 0.7
#: To launch one layer from Python, ms: about 15 kernels, 10 us each. Eager mode, as in the paper's reference plugin;
#: a captured graph launches a whole pass at once. The CPU runs ahead, so launches are not added to the device's time:
#: a pass merely cannot be shorter than they are. Small drafters are bound by this.
LAUNCH_MS_A_LAYER = 0.15
#: Beside the layers, ms a pass: inputs to the device, embedding, last norm, sampling, ids back.
PASS_MS = 0.5
#: Of a device's memory, what vLLM uses unless told otherwise (`gpu_memory_utilization`).
MEMORY_SHARE = 0.9
#: For activations and buffers, GB a device.
ACTIVATIONS_GB = 1.0
#: The layers of tensor-parallel ranks add up their parts twice: after attention and after the MLP.
_REDUCTIONS_A_LAYER = 2
_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device, as its data sheet has it.

    Attributes:
        name: of the device.
        memory_gb: GB.
        bandwidth_gb_s: of its memory, GB/s.
        tflops: dense fp16 and bf16 tensor TFLOPS.
        link_gb_s: to the other devices, per direction, GB/s.
        reduce_us: an all-reduce of a few KB between four of them, us (not in a data sheet: what such links take).
        source: where this is from.
    """

    name: str
    memory_gb: float
    bandwidth_gb_s: float
    tflops: float
    link_gb_s: float
    reduce_us: float
    source: str


@dataclass(frozen=True, slots=True)
class Model:
    """A dense decoder (Llama, Qwen3), as its `config.json` has it; norms and biases are left out (under 0.1 %).

    Attributes:
        name: of the model.
        layers: how many.
        hidden: size.
        heads: of attention.
        kv_heads: of keys and values.
        head_dim: size of a head.
        intermediate: size in the MLP, which has three matrices.
        vocab: tokens.
        tied: whether the output matrix is the embedding.
        layer_bits: bits of a layer's weight with its scales; embedding and output are 16 bits.
        source: where this is from.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    source: str
    layer_bits: float = 16.0

    @property
    def layer_parameters(self) -> int:
        """Of all layers together."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All, the embedding too."""
        return self.layer_parameters + self.hidden * self.vocab * (1 if self.tied else 2)

    @property
    def multiplied(self) -> int:
        """The parameters that each token is multiplied with: all but an embedding that is only looked up."""
        return self.layer_parameters + self.hidden * self.vocab

    @property
    def weight_bytes(self) -> float:
        """What the model takes in memory."""
        return self.read_bytes + (0 if self.tied else 2 * self.hidden * self.vocab)

    @property
    def read_bytes(self) -> float:
        """What a pass reads of it."""
        return self.layer_parameters * self.layer_bits / 8 + 2 * self.hidden * self.vocab

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token, in 16 bits."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim


def pass_cost(model: Model, gpu: Gpu, devices: int = 1) -> PassCost:
    """What a pass of the model costs on so many devices, tensor-parallel, as if it could be divided by any number.

    - To read the weights: bytes / (devices x bandwidth x `BANDWIDTH_SHARE`), and no less than the launches.
    - To compute a token: 2 x parameters / (devices x FLOPS x `FLOPS_SHARE`); quantized weights compute in 16 bits, too.
    - For a token of context: its keys and values, read like the weights.
    - Between devices: two all-reduces a layer; each takes its latency, and each token sends 2 (n - 1) / n of its
      activations (a ring). They wait for the layer and the layer after waits for them, so they are added.
    """
    read_ms_a_byte = 1e3 / (devices * gpu.bandwidth_gb_s * 1e9 * BANDWIDTH_SHARE)
    reductions = _REDUCTIONS_A_LAYER * model.layers if devices > 1 else 0
    sent = 2 * (devices - 1) / devices * model.hidden * _ACTIVATION_BYTES
    return PassCost(
        fixed_ms=PASS_MS + reductions * gpu.reduce_us / 1e3,
        floor_ms=max(model.read_bytes * read_ms_a_byte, model.layers * LAUNCH_MS_A_LAYER),
        token_ms=2 * model.multiplied * 1e3 / (devices * gpu.tflops * 1e12 * FLOPS_SHARE),
        context_token_ms=model.kv_bytes * read_ms_a_byte,
        link_token_ms=reductions * sent * 1e3 / (gpu.link_gb_s * 1e9 * LINK_SHARE),
    )


def fits(models: Iterable[Model], gpu: Gpu, devices: int, tokens: int) -> bool:
    """Whether the models fit on the devices, divided evenly, with the keys and values of so many tokens in each."""
    needed = sum(model.weight_bytes + model.kv_bytes * tokens for model in models)
    return needed / 1e9 <= devices * (gpu.memory_gb * MEMORY_SHARE - ACTIVATIONS_GB)
