"""`producer redis`: this user's embedded server."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import typer

from producer.cli.common import ExitCode, JsonOption, fail, print_json, say
from producer.server.embedded import EmbeddedRedis
from producer.server.errors import ServerError

app = typer.Typer(help="This user's embedded Redis server, the default of every command.", no_args_is_help=True)


@app.command()
def start() -> None:
    """Start the server if it does not run; prints its URL."""
    _tell(EmbeddedRedis.start, "started", "runs already")


@app.command()
def stop() -> None:
    """Save everything and stop the server."""
    _tell(EmbeddedRedis.stop, "stopped", "was not running")


@app.command()
def status(json: JsonOption = False) -> None:
    """Show whether the server runs (exit code 0) or not (3), and where it is."""
    with _plain_errors():
        found = EmbeddedRedis().status()
    if json:
        print_json(
            {name: value if isinstance(value, int | None) else str(value) for name, value in asdict(found).items()}
        )
    else:
        for name, value in asdict(found).items():
            sys.stdout.write(f"{name.replace('_', ' ')}: {value}\n")
    raise typer.Exit(ExitCode.FINE if found.running else ExitCode.NO_REDIS)


def _tell(action: Callable[[EmbeddedRedis], bool], done: str, already: str) -> None:
    with _plain_errors():
        server = EmbeddedRedis()
        say(f"the embedded Redis {done if action(server) else already}: {server.url}")


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise typer.Exit(fail(str(error), ExitCode.USAGE)) from None
