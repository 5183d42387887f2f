"""Tier B: the product's engine on GPUs, with vLLM's CUDA build; no Redis.

    python tests/gpu/tier_b.py [--report FILE] [--parts psd,overlap] [--link host] [--model TARGET --draft-model DRAFT]

Two GPUs for all of it. On one, ranks share it through the host's memory: then texts are judged, times are not.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 475.0
_IF_INSTALLED = "--if-installed"


def why_not(*, installed: bool, cpu_build: bool, gpus: int) -> str | None:
    """What is missing here; None: nothing."""
    if not installed:
        return "tier B needs vLLM, which is not installed for this Python"
    if cpu_build:
        return "tier B needs vLLM's CUDA build, and its CPU build is installed"
    return None if gpus else "tier B needs a GPU, and torch sees none here"


def link_for(asked: str | None, *, gpus: int, verifiers: int) -> str:
    """What carries messages: what was asked for, or what these GPUs can do."""
    return asked or ("nccl" if gpus > verifiers else "host")


def main() -> int:
    from gpu import parts

    if missing := _missing():
        print(missing)
        return parts.PASSED if _IF_INSTALLED in sys.argv[1:] else parts.IMPOSSIBLE
    import torch
    from gpu import engine_parts, link_checks, machine

    tier = [
        parts.Part("machine", "versions, and what is there", engine_parts.machine, 60, 10),
        parts.Part("link", "messages between the product's own ends of a link", link_checks.run_product, 90, 30),
        parts.Part("psd", "two batches against plain decoding", engine_parts.psd, 100, 40),
        parts.Part("overlap", "do the batches overlap", engine_parts.overlapping, 110, 50),
        parts.Part("death", "the drafter is killed", engine_parts.death, 80, 40),
        parts.Part("graphs", "with CUDA graphs, short of tokens and blocks", engine_parts.graphs, 130, 50),
        parts.Part("sd", "vLLM's own speculative decoding against plain decoding", engine_parts.sd, 150, 60),
        parts.Part("bf16", "two batches against plain decoding, in bfloat16", engine_parts.bf16, 110, 70),
    ]
    parser = parts.parser(__doc__ or "", tier, BUDGET_S)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--link", choices=("nccl", "host"), help="what carries messages (what these GPUs can do)")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, help="verifiers (%(default)s)")
    parser.add_argument("--model", help="the target (a synthetic one, made here)")
    parser.add_argument("--draft-model", help="the draft model that goes with it")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (%(default)s)")
    parser.add_argument(
        "--if-installed", action="store_true", help="without vLLM's CUDA build do nothing, and be content"
    )
    options = parser.parse_args()
    if bool(options.model) != bool(options.draft_model):
        parser.error("--model and --draft-model go together")
    options.gpus = torch.cuda.device_count()
    options.link = link_for(options.link, gpus=options.gpus, verifiers=options.tensor_parallel_size)
    if options.only_part:
        return parts.run_one(tier, options)
    try:
        asked = parts.chosen(tier, options.parts)
    except ValueError as error:
        parser.error(str(error))
    print(f"link: {options.link}, {options.gpus} GPU{'s' * (options.gpus > 1)}", flush=True)
    facts = {"tier": "B", "link": options.link, "verifiers": options.tensor_parallel_size, **machine.facts()}
    with tempfile.TemporaryDirectory(prefix="tier-b-") as folder:
        return parts.run_all(asked, options, script=__file__, folder=Path(folder), facts=facts)


def _missing() -> str | None:
    installed = all(importlib.util.find_spec(name) for name in ("torch", "vllm"))
    if not installed:
        return why_not(installed=False, cpu_build=False, gpus=0)
    import torch

    from worker.engine.platform import is_cpu_build

    return why_not(installed=True, cpu_build=is_cpu_build(), gpus=torch.cuda.device_count())


def _prepare(environ: MutableMapping[str, str]) -> None:
    """Let this process and the engine's find the product, load nothing from elsewhere, and say little."""
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # in place of this folder, whose names are not for everybody
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    for name, value in (("HF_HUB_OFFLINE", "1"), ("NCCL_DEBUG", "WARN"), ("VLLM_LOGGING_LEVEL", "WARNING")):
        environ.setdefault(name, value)
    # Float32 is compared: Triton's attention kernels would compute it in TF32.
    environ.setdefault("TRITON_F32_DEFAULT", "ieee")


if __name__ == "__main__":
    _prepare(os.environ)
    sys.exit(main())
