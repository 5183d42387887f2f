"""The command `producer`."""

import typer

from producer.cli.commands import EPILOG, Commands

app = typer.Typer(
    name="producer",
    cls=Commands,
    help="Submit datasets to minedraft workers, watch them, fetch their results.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Makes typer build a group: its commands are in the table."""
