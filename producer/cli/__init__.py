"""The command `producer`."""

import typer

from producer.cli import control, purge, redis, results, status, submit, watch

app = typer.Typer(
    name="producer",
    help="Submit datasets to minedraft workers, watch them, fetch their results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(submit.submit)
app.command()(status.status)
app.command()(watch.watch)
app.command()(results.results)
for command in (control.cancel, control.pause, control.resume, control.retry):
    app.command()(command)
app.command()(purge.purge)
app.add_typer(redis.app, name="redis")


def main() -> None:
    """The console script."""
    app()
