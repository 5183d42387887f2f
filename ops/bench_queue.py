"""`make bench`: the same rows through Redis and through vLLM's own `run-batch`, on the same settings, in one run.

Both engines are started first and stay up; the two sides then take turns, so that drift of the machine hits both.
The time is from the first row given to the last result written, start-up excluded. Above 1, the queue is faster.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from shell import VICUNA, Shell, shell_in  # noqa: E402

from worker.engine import platform  # noqa: E402
from worker.engine.placement import place  # noqa: E402
from worker.engine.vllm_args import VllmOptions, default_flags  # noqa: E402
from worker.lab import quiet  # noqa: E402
from worker.models.embedded import embedded_model  # noqa: E402

#: Every turn must compute everything: nothing of the turn before may be reused.
ENGINE_ARGS = "--no-enable-prefix-caching --max-model-len 2048"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="how often each side runs")
    parser.add_argument("--rows", type=int, default=80, help="rows of the Vicuna set")
    parser.add_argument("--max-num-seqs", type=int, default=16)
    parser.add_argument("--run-batch", nargs=2, metavar=("INPUT", "OUTPUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run_batch:
        return asyncio.run(run_batch_side(*arguments.run_batch, arguments.max_num_seqs))
    if disturbance := quiet.check():
        print(f"bench: the machine is not quiet, no result: {disturbance}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="minedraft-bench-") as folder, shell_in(Path(folder)) as shell:
        return compare(shell, Path(folder), arguments)


def compare(shell: Shell, folder: Path, arguments: argparse.Namespace) -> int:
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{line}\n" for line in VICUNA.read_text().splitlines()[: arguments.rows]))
    batch_output = folder / "batch.jsonl"
    flags = ["--mode", "ar", "--max-num-seqs", str(arguments.max_num_seqs), f"--engine-args={ENGINE_ARGS}"]
    worker = shell.worker(*flags).ready(300)
    command = [sys.executable, __file__, "--run-batch", str(rows), str(batch_output)]
    with (folder / "run-batch.log").open("w") as log:
        batch = subprocess.Popen(
            [*command, "--max-num-seqs", str(arguments.max_num_seqs)],
            env=shell.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert batch.stdin
    assert batch.stdout
    assert batch.stdout.readline() == "ready\n"
    ratios = []
    for turn in range(arguments.turns):
        batch.stdin.write("go\n")
        batch.stdin.flush()
        batch_seconds = float(batch.stdout.readline())
        queue_seconds, job = queue_side(shell, rows)
        ours, theirs = texts(shell.results(job)), texts(map(json.loads, batch_output.read_text().splitlines()))
        same = sum(ours[name] == text for name, text in theirs.items())
        ratios.append(batch_seconds / queue_seconds)
        print(
            f"turn {turn + 1}: run-batch {batch_seconds:.2f} s, queue {queue_seconds:.2f} s, ratio {ratios[-1]:.3f}; "
            f"{same}/{arguments.rows} texts equal",
            flush=True,
        )
    batch.stdin.close()
    batch.wait()
    worker.terminate(60)
    print(
        f"bench: queue against run-batch, {arguments.rows} rows, {arguments.max_num_seqs} at once: "
        f"median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}"
    )
    return 0


def queue_side(shell: Shell, rows: Path) -> tuple[float, str]:
    """Submit, wait for the last row; seconds from the start of `producer submit` and the job."""
    started = time.time()
    job = shell.submit(rows, "--new")["job_id"]
    shell.producer("watch", job)
    status = shell.status(job)
    assert status["failed"] == 0, status
    # From when the job could be seen: starting a Python program is not what is measured.
    return status["ended"] - max(status["created"], started), job


def texts(results) -> dict[str, str]:
    return {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in results}


async def run_batch_side(rows: str, output: str, max_num_seqs: int) -> int:
    """The other process: vLLM's run-batch over an engine that stays up; a turn for every line on stdin."""
    options = VllmOptions(
        model=str(embedded_model()), served_model_name="target", max_num_seqs=max_num_seqs, engine_args=ENGINE_ARGS
    )
    cpu = platform.is_cpu_build()
    platform.set_environment(os.environ, options.models, cpu=cpu)
    if cpu:  # as the worker does: neither side gets a core more
        cores = place(sorted(os.sched_getaffinity(0)), 1, drafter=False)
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", cores.omp_bind)
    platform.set_compiler(os.environ, eager=True, cpu=cpu)
    from vllm.entrypoints.launchers import run_batch
    from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    flags = [*default_flags(options, cpu=cpu), *ENGINE_ARGS.split(), "-i", rows, "-o", output]
    parsed = run_batch.make_arg_parser(FlexibleArgumentParser()).parse_args(flags)
    async with build_async_engine_client(parsed, usage_context=UsageContext.OPENAI_BATCH_RUNNER) as engine:
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            started = time.monotonic()
            await run_batch.run_batch(engine, parsed)
            print(time.monotonic() - started, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
