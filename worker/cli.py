"""The command `worker`."""

import sys
from collections.abc import Callable
from importlib import import_module

_MODULES = {
    "run": "worker.run",
    "verify": "worker.verify.command",
    "bench": "worker.lab.bench_cli",
    "trace": "worker.lab.trace_cli",
    "plan": "worker.lab.plan_cli",
    "strategies": "worker.strategies.command",
}
_USAGE = """\
usage: worker run [flags]      answer the rows of jobs in Redis
       worker verify [flags]   answer some rows of a job again, in plain decoding, and compare
       worker bench [flags]    measure plain decoding, speculation and two batches side by side
       worker trace [flags]    draw what an engine does, and when
       worker plan [flags]     predict what devices give, and whether two batches pay
       worker strategies       list the ways to draft and to verify, and what each needs
`worker COMMAND --help` lists the flags.
"""


def main() -> None:
    """The console script."""
    match sys.argv[1:]:
        case [command, *arguments] if command in _MODULES:
            sys.exit(_run(command, arguments))
        case ["-h" | "--help"]:
            sys.stdout.write(_USAGE)
        case _:
            sys.stderr.write(_USAGE)
            sys.exit(2)


def _run(command: str, arguments: list[str]) -> int:
    try:
        # Not earlier: the base install has none of what a worker needs.
        run: Callable[[list[str]], int] = import_module(_MODULES[command]).run
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"worker: {missing.name} is not installed: a worker needs minedraft-worker[cpu] or minedraft-worker[gpu]\n"
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run(arguments)
