"""The paper's pairs on the devices that its plugin recommends, as profiles: `qwen3-32b+1.7b@h100`; and `flat:25,15`.

The paper's targets are on four devices and the drafter on one more. Acceptance is an assumption, the same for all that
is compared: it decides which k is best and whether speculation pays, and hardly how two batches compare with one.
"""

from worker.lab.profile import PassCost, Profile
from worker.lab.roofline import Gpu, Model, fits, pass_cost

#: Of every named profile.
TARGET_DEVICES = 4
#: What a replica on a single device must have room for: 64 requests in flight with 512 tokens each.
_REPLICA_TOKENS = 64 * 512

L40 = Gpu(
    name="L40",
    memory_gb=48,
    bandwidth_gb_s=864,
    tflops=181,
    link_gb_s=32,
    reduce_us=40,
    source="NVIDIA L40 data sheet: 48 GB GDDR6, 864 GB/s, 181 dense bf16 TFLOPS, PCIe 4.0 x16, no NVLink",
)
A100 = Gpu(
    name="A100",
    memory_gb=80,
    bandwidth_gb_s=2039,
    tflops=312,
    link_gb_s=300,
    reduce_us=12,
    source="NVIDIA A100 80GB SXM data sheet: 2,039 GB/s, 312 dense bf16 TFLOPS, NVLink 600 GB/s both ways together",
)
H100 = Gpu(
    name="H100",
    memory_gb=80,
    bandwidth_gb_s=3350,
    tflops=989,
    link_gb_s=450,
    reduce_us=12,
    source="NVIDIA H100 80GB SXM data sheet: 3.35 TB/s, 989 dense bf16 TFLOPS, NVLink 900 GB/s both ways together",
)

#: By the suffix that asks for them. The reference plugin's README recommends all three; the first is the default.
GPUS = {"l40": L40, "a100": A100, "h100": H100}


def _qwen3(size: str, layers: int, hidden: int, heads: int, intermediate: int, *, tied: bool) -> Model:
    name = f"Qwen3-{size}"
    source = f"{name}: its config.json on the model hub ({layers} layers, hidden {hidden}, {heads} heads, 8 KV heads)"
    return Model(name, layers, hidden, heads, 8, 128, intermediate, 151936, tied, source)


QWEN3_32B = _qwen3("32B", 64, 5120, 64, 25600, tied=False)
QWEN3_4B = _qwen3("4B", 36, 2560, 32, 9728, tied=True)
QWEN3_1_7B = _qwen3("1.7B", 28, 2048, 16, 6144, tied=True)
QWEN3_0_6B = _qwen3("0.6B", 28, 1024, 16, 3072, tied=True)
LLAMA_8B = Model(
    name="Llama-3.1-8B",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=14336,
    vocab=128256,
    tied=False,
    source="Llama-3.1-8B: its config.json on the model hub (32 layers, hidden 4096, 32 heads, 8 KV heads)",
)
LLAMA_70B_AWQ = Model(
    name="Llama-3.3-70B-AWQ",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128256,
    tied=False,
    layer_bits=4 + (16 + 4) / 128,  # for each group of 128 weights a 16-bit scale and a 4-bit zero
    source="Llama-3.3-70B: its config.json on the model hub (80 layers, hidden 8192, 64 heads, 8 KV heads); "
    "AWQ: 4 bits in groups of 128",
)

#: What `flat` is followed by.
_FLAT = "flat:V,t[,acceptance][,spread=S][,template=T][,token=MS]"
#: Target, draft model, and the assumed acceptance, the same at each position.
_PAIRS = {
    "qwen3-32b+0.6b": (QWEN3_32B, QWEN3_0_6B, 0.60),
    "qwen3-32b+1.7b": (QWEN3_32B, QWEN3_1_7B, 0.66),
    "qwen3-32b+4b": (QWEN3_32B, QWEN3_4B, 0.72),
    "llama3.3-70b-awq+8b": (LLAMA_70B_AWQ, LLAMA_8B, 0.75),
}
_ASSUMED = (
    "acceptance {share:.2f} at each position: ASSUMED, not measured. Leviathan et al. 2023 report 0.5 to 0.7 at "
    "temperature 1, more for larger drafters (T5 of 1/140 to 1/14 of the target); chat models of one family, taught by "
    "the same data, should agree a little more"
)


class ProfileError(Exception):
    """There is no such profile; one line that says which there are."""


def names() -> list[str]:
    """What `profile` understands, for messages."""
    gpus = "|".join(GPUS)
    return [*(f"{pair}[@{gpus}]" for pair in _PAIRS), _FLAT]


def profile(text: str, drafts: int = 1) -> Profile:
    """The profile of that name.

    Args:
        text: a pair, on L40s unless its end says `@a100` or `@h100`; or `flat:V,t`, `flat:V,t,acceptance`: V and t in
            ms, whatever is in a batch, and after these any of `spread=`, `template=` (`Profile`) and `token=`: ms that
            a token of the target's pass takes, which is V until all of them together take longer.
        drafts: for how many drafts a `flat` t is; any other number takes as much longer or shorter.

    Raises:
        ProfileError: there is none of that name, or its numbers make no sense.
    """
    if text.startswith("flat:"):
        return _flat(text, drafts)
    pair, _, gpu = text.partition("@")
    if pair not in _PAIRS or (gpu or "l40") not in GPUS or text.endswith("@"):
        raise ProfileError(f"no profile {text!r}; there are: {', '.join(names())}")
    return _published(text, *_PAIRS[pair], GPUS[gpu or "l40"])


def _published(name: str, target: Model, draft: Model, acceptance: float, gpu: Gpu) -> Profile:
    alone = fits([target, draft], gpu, 1, _REPLICA_TOKENS)
    everything = TARGET_DEVICES + 1
    return Profile(
        name=name,
        devices=TARGET_DEVICES,
        target=pass_cost(target, gpu, TARGET_DEVICES),
        draft=pass_cost(draft, gpu),
        target_on_all=pass_cost(target, gpu, everything),
        target_on_one=pass_cost(target, gpu) if alone else None,
        draft_on_target=min(pass_cost(draft, gpu), pass_cost(draft, gpu, TARGET_DEVICES), key=_typical_ms),
        acceptance=(acceptance,),
        sources=(
            gpu.source,
            target.source,
            draft.source,
            f"the target on {everything} devices as if it could be divided: {target.heads} heads cannot, "
            "so this favours SD with all devices",
            f"in sd the draft model is on one of the {TARGET_DEVICES} devices or divided among them: what is faster",
            _ASSUMED.format(share=acceptance),
            "times: the roofline of worker/lab/roofline.py, with its constants",
        ),
    )


def _typical_ms(draft: PassCost) -> float:
    """Of the paper's middle batch."""
    return draft.ms(32)


def _flat(text: str, drafts: int) -> Profile:
    try:
        verify_ms, draft_ms, acceptance, named = _numbers(text.removeprefix("flat:"))
    except ValueError as error:
        message = f"{text!r} is not {_FLAT}, with times above 0 in ms and the others from 0 to 1"
        raise ProfileError(f"{message}; there are: {', '.join(names())}") from error
    token_ms, spread, template = (named[name] for name in _NAMED)
    made_up = f"made up: V = {verify_ms:g} ms, t = {draft_ms:g} ms for {drafts} drafts, whatever is in a batch"
    if token_ms:
        made_up += f", but V is {token_ms:g} ms a token where that is longer"
    return Profile(
        name=text,
        devices=TARGET_DEVICES,
        target=PassCost(fixed_ms=0.0, floor_ms=verify_ms, token_ms=token_ms),
        draft=PassCost(fixed_ms=draft_ms / max(1, drafts)),
        acceptance=(acceptance,),
        spread=spread,
        template=template,
        sources=(made_up,),
    )


#: What `flat` may say by name, each once.
_NAMED = ("token", "spread", "template")


def _numbers(text: str) -> tuple[float, float, float, dict[str, float]]:
    """V, t and the acceptance of `flat`, and the rest by name."""
    words = text.split(",")
    plain = [word for word in words if "=" not in word]
    verify_ms, draft_ms, *rest = map(float, plain)
    (acceptance,) = rest or (0.7,)
    said = [word.partition("=") for word in words[len(plain) :]]
    named = {name: float(number) for name, _, number in said}
    if not (0 < verify_ms < 1e6 and 0 < draft_ms < 1e6 and 0 <= acceptance <= 1):
        raise ValueError(text)
    if len(named) < len(said) or named.keys() - set(_NAMED):
        raise ValueError(text)
    shares = (named.get("spread", 0.0), named.get("template", 0.0))
    if not all(0 <= share <= 1 for share in shares) or not 0 <= named.get("token", 0.0) < 1e6:
        raise ValueError(text)
    return verify_ms, draft_ms, acceptance, {**dict.fromkeys(_NAMED, 0.0), **named}
