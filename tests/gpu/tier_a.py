"""Tier A: this project's own CUDA code on one or more GPUs, with torch alone: no vLLM, no models, no Redis.

    python tests/gpu/tier_a.py [--report FILE] [--parts link,order] [--device cpu]

With one GPU both ranks share it, so what takes how long is measured and not judged. `--device cpu` is a dry run: the
same code on a CPU that stands for a GPU.
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 470.0


def main() -> int:
    for needed in ("torch", "numpy"):
        if importlib.util.find_spec(needed) is None:
            print(f"tier A needs {needed}, which is not installed for this Python")
            return 2
    import torch
    from gpu import clock, link_checks, machine, order, packing, parts

    tier = [
        parts.Part("machine", "what there is", machine.run, 60, 10),
        parts.Part("packing", "packets and the table of drafts, against a slow account of them", packing.run, 60, 15),
        parts.Part("clock", "when a device did what, on the CPU's clock", clock.run, 60, 15),
        parts.Part("link", "messages between two processes", link_checks.run, 180, 60),
        parts.Part("order", "two batches on made-up work: do both sides compute at the same time", order.run, 150, 45),
    ]
    parser = parts.parser(__doc__ or "", tier, BUDGET_S)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (%(default)s)")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        why = "torch sees none here" if torch.version.cuda else "this Python's PyTorch is one for CPUs (GPU_PYTHON=...)"
        print(f"tier A needs a GPU, and {why}; --device cpu is a dry run without one")
        return parts.IMPOSSIBLE
    if options.only_part:
        return parts.run_one(tier, options)
    try:
        asked = parts.chosen(tier, options.parts)
    except ValueError as error:
        parser.error(str(error))
    facts = {"tier": "A", "device": options.device, "dry_run": options.device == "cpu", **machine.facts()}
    with tempfile.TemporaryDirectory(prefix="tier-a-") as folder:
        return parts.run_all(asked, options, script=__file__, folder=Path(folder), facts=facts)


if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # in place of this folder, whose names are not for everybody
    sys.exit(main())
