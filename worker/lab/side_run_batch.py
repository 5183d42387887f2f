"""A side that is vLLM's own `run-batch`, on an engine as it makes it, which stays up."""

import json
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from worker.engine import platform
from worker.engine.vllm_args import default_flags
from worker.lab.result import Turn
from worker.lab.side_common import Answered, TokenTimes, Told, body_of, texts_of


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    """The engine from start to end; its flags are those of mode `ar`."""
    options, cpu = told.options, platform.is_cpu_build()
    platform.set_environment(os.environ, options.models, cpu=cpu)
    if cpu and options.verifier_cpus:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, options.verifier_cpus))
    platform.set_compiler(os.environ, eager=True, cpu=cpu)
    # Not earlier: vLLM reads its environment when it is imported.
    from vllm.entrypoints.launchers import run_batch  # noqa: PLC0415
    from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client  # noqa: PLC0415
    from vllm.usage.usage_lib import UsageContext  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    output, times = told.rows.with_suffix(".answers"), TokenTimes()
    flags = [
        *default_flags(options, cpu=cpu),
        *shlex.split(options.engine_args),
        "-i",
        str(told.rows),
        "-o",
        str(output),
    ]
    parsed = run_batch.make_arg_parser(FlexibleArgumentParser()).parse_args(flags)

    async with build_async_engine_client(parsed, usage_context=UsageContext.OPENAI_BATCH_RUNNER) as engine:

        async def turn() -> Answered:
            started = time.monotonic()
            await run_batch.run_batch(engine, parsed)
            seconds = time.monotonic() - started
            bodies = [body_of(json.loads(line)) for line in output.read_text(encoding="utf-8").splitlines()]
            tokens = sum(body["usage"]["completion_tokens"] for body in bodies)
            return Answered(Turn(seconds, tokens, tokens / seconds, ms_per_token=times.take()), texts_of(bodies))

        await turn()  # a warm-up
        yield turn
