"""`producer results`: the answers, as files."""

from enum import StrEnum
from typing import Annotated

import typer

from producer.cli.common import JobArgument, RedisOption, run
from producer.results.formats import Format


class Order(StrEnum):
    """The order of lines in a results file."""

    INPUT = "input"
    DONE = "done"


_MANIFEST_HELP = "Write FILE.manifest.json, too: model, drafter, versions, sampling, counts, throughput, digests."


def results(
    job: JobArgument,
    *,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE|-", help="Where to.")] = "-",
    errors: Annotated[
        str | None, typer.Option("--errors", metavar="FILE", help="Where failed rows go instead, as OpenAI has it.")
    ] = None,
    shape: Annotated[
        Format | None,
        typer.Option("--format", help="OpenAI's batch output, flat records, or a table; parquet for a FILE.parquet."),
    ] = None,
    order: Annotated[Order, typer.Option(help="As submitted, or as rows ended.")] = Order.DONE,
    partial: Annotated[
        bool, typer.Option("--partial", help="Write what there is of a job that has not ended.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write rows as they end, until the job has; exit 1 if some failed.")
    ] = False,
    consume: Annotated[
        bool, typer.Option("--consume", help="Move them out of Redis into FILE, until the job has ended.")
    ] = False,
    manifest: Annotated[bool, typer.Option("--manifest/--no-manifest", help=_MANIFEST_HELP)] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there, whatever is in them.")
    ] = False,
    redis: RedisOption = None,
) -> None:
    """Write an ended job's results: a line for each row, answered or failed.

    The number of lines is checked. Files appear at the end, whole or not at
    all, the manifest last. A name that ends in .gz or .zst is compressed so.
    Files that are there are replaced if their manifest says that they have
    results of this job.

    With --follow lines are written as rows end, and FILE.part becomes FILE
    when the job has ended. With --consume FILE grows as rows end, and their
    results leave Redis. Whatever is interrupted, the same command goes on,
    and each row is in FILE once. A job that paused itself ends both (exit 1).

    Exit codes: 0 all that was asked for was written, 1 results are missing
    in Redis; with --follow also 1 if some rows failed.
    """
    from producer.cli import fetching  # noqa: PLC0415 - `producer --help` needs none of it

    asked = fetching.Asked(job, output, errors, shape, order.value, partial, follow, consume, manifest, overwrite)
    run(fetching.write_results(asked, redis))
