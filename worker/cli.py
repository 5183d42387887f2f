"""The command `worker`."""

import sys

_USAGE = """\
usage: worker run [flags]    answer the rows of jobs in Redis (`worker run --help` lists the flags)
"""


def main() -> None:
    """The console script."""
    match sys.argv[1:]:
        case ["run", *arguments]:
            sys.exit(_run(arguments))
        case ["-h" | "--help"]:
            sys.stdout.write(_USAGE)
        case _:
            sys.stderr.write(_USAGE)
            sys.exit(2)


def _run(arguments: list[str]) -> int:
    try:
        from worker.run import run  # noqa: PLC0415 - the base install has none of what a worker needs
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"worker: {missing.name} is not installed: a worker needs minedraft-worker[cpu] or minedraft-worker[gpu]\n"
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run(arguments)
