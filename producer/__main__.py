"""The console script `producer`, which ends in a word of its own whatever its surroundings are."""

import os
import signal
import sys

#: As `producer.cli.common.ExitCode` has them, which must not be imported before Ctrl-C is quiet.
_USAGE, _INTERRUPTED = 2, 130


def main() -> None:
    """Run the command that was typed.

    Ctrl-C while modules are still imported ends it at once; from then on each command says what an interruption means.
    Streams that are closed are nothing: what is said into them goes nowhere.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115, PTH123 - for as long as the program runs
    try:
        try:
            from producer.cli import app  # noqa: PLC0415

            app()
        finally:
            sys.stdout.flush()
    except OSError as error:  # what was printed cannot be written: a full disk, or a reader that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        sys.stderr.write(f"producer: standard output: {error.strerror or error}\n")
        sys.exit(_USAGE)


if __name__ == "__main__":
    main()
