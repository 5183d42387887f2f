"""The command `worker verify`."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from producer.cli.common import ExitCode, Refused, find_job, people, printable, redis_at, say
from producer.errors import NoRedisUrl, RedisUnavailable
from producer.record import fetch, jobs
from producer.record.jobs import JobStatus
from producer.record.models import TARGET, JobState
from worker.engine.protocol import EngineStartError
from worker.engine.supervisor import EngineSupervisor
from worker.engines import engine_factory
from worker.models.errors import ModelError
from worker.settings import UsageError
from worker.verify.check import Finding, check
from worker.verify.comparable import Kind
from worker.verify.given import (
    Chooser,
    Given,
    GivenError,
    check_models,
    check_results,
    read_submitted,
    result_lines,
    rows_of,
)
from worker.verify.model import ModelFacts, facts
from worker.verify.report import Report, sentences, table, to_json
from worker.verify.settings import VerifySettings, plain_settings, read_settings, with_logits
from worker.verify.ties import TieRule

#: Characters that the table takes, whatever the terminal's: one that is cut says nothing.
_WIDTH = 160


def run(argv: Sequence[str]) -> int:
    """Check and print; the exit code. Whatever goes wrong is one line on standard error."""
    try:
        settings = plain_settings(read_settings(argv))
        logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr)
        report = asyncio.run(_verify(settings))
    except (UsageError, Refused, GivenError, NoRedisUrl, EngineStartError, ModelError) as error:
        return _fail(error, ExitCode.USAGE)
    except RedisUnavailable as error:
        return _fail(error, ExitCode.NO_REDIS)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    _show(report, as_json=settings.as_json)
    return 1 if report.different else 0


async def _verify(settings: VerifySettings) -> Report:
    if settings.job is None:
        assert settings.results is not None
        source, missing = str(settings.results), ""
        check_results(settings.results)  # before vLLM takes its time, and again: it is a file that the user names
        model = await asyncio.to_thread(facts, settings)
        submitted = read_submitted(settings.submitted, model.temperature, settings.job_defaults)
        counted = Chooser(submitted, settings.rows, settings.seed)
        for line in result_lines(settings.results):
            counted.add(line)
    else:
        source = f"job {settings.job}"
        model, counted, missing = await _read_job(settings, settings.job)
    _check_counts(counted, source, model)
    rows = rows_of(settings.submitted, counted.submitted, counted.chosen)
    rule = TieRule(model.dtype, settings.tie_gap)
    findings = await _answer_again(settings, rows, model, rule)
    return Report(source, missing, model.name, rule, counted, findings)


async def _read_job(settings: VerifySettings, job_id: str) -> tuple[ModelFacts, Chooser, str]:
    """The job's answers, and why they are not all there."""
    async with redis_at(settings.redis_url) as redis:
        job = await find_job(redis, job_id)
        _check_job(job, settings)
        model = await asyncio.to_thread(facts, settings)
        identity, defaults = await jobs.asked(redis, job_id)
        if defaults is None:
            raise Refused(f"somebody has damaged what the rows of job {job_id} ask for")
        submitted = read_submitted(settings.submitted, model.temperature, defaults)
        if identity is not None and not submitted.is_job(identity, job.model):
            raise Refused(f"{settings.submitted} is not, or no longer, what was submitted as job {job_id}")
        counted = Chooser(submitted, settings.rows, settings.seed)
        async for line in fetch.results(redis, job_id, order="input"):
            counted.add(line)
    missing = []
    if not job.state.ended:
        missing.append(f"job {job_id} is {job.state}: {job.done} of its {job.rows} rows have ended so far")
    if job.consumed:
        missing.append(f"{job.consumed} rows of job {job_id} were consumed: --results FILE checks those, too")
    return model, counted, "; ".join(missing)


def _check_job(job: JobStatus, settings: VerifySettings) -> None:
    """Refuse, before anything takes time, what cannot be compared.

    Raises:
        Refused: why.
    """
    name = f"job {job.job_id}"
    if job.state is JobState.SUBMITTING:
        raise Refused(f"{name} is still being submitted")
    if job.consumed and job.consumed == job.done:
        raise Refused(f"the answers of {name} were consumed: --results FILE in place of {job.job_id}")
    if job.done == job.failed:
        what = f"all of its {job.failed} rows that have ended failed" if job.failed else "it has no answers yet"
        raise Refused(f"there is nothing to check in {name}: {what}")
    if job.model not in (settings.served, TARGET):
        raise Refused(
            f"{name} is for model {job.model!r}, and this would ask {settings.served!r}: give --model and "
            "--served-model-name as the job's workers had them"
        )


def _check_counts(counted: Chooser, source: str, model: ModelFacts) -> None:
    """Refuse a check of nothing.

    Raises:
        GivenError: why there is nothing to check.
    """
    if counted.comparable:
        check_models(counted.models, model.name)
        return
    if not counted.answered:
        raise GivenError(f"there is nothing to check in {source}: {counted.failed} rows failed, none was answered")
    if counted.foreign == counted.answered:
        raise GivenError(f"none of the answers in {source} is to a row of the submitted file")
    raise GivenError(f"there is nothing to check in {source}: its {counted.free} rows were all sampled without a seed")


async def _answer_again(
    settings: VerifySettings, rows: Sequence[Given], model: ModelFacts, rule: TieRule
) -> list[Finding]:
    """What rows came to, in their order.

    Beam search adds up what the engine tells as `logprobs`: an engine that tells logits finds other beams. Its rows
    have an engine of their own, which tells what the workers' did.
    """
    beams = [given for given in rows if given.kind is Kind.BEAM]
    others = [given for given in rows if given.kind is not Kind.BEAM]
    findings: list[Finding] = []
    for own, asked in ((with_logits(settings), others), (settings, beams)):
        if asked:
            findings += await _ask(own, asked, model, rule)
    return sorted(findings, key=lambda finding: finding.line)


async def _ask(settings: VerifySettings, rows: Sequence[Given], model: ModelFacts, rule: TieRule) -> list[Finding]:
    """Answer rows with one engine."""
    say(f"verify: starting {model.name!r} in plain decoding, to answer {len(rows)} rows again")
    engine = EngineSupervisor(await asyncio.to_thread(engine_factory, settings))
    try:
        await engine.start()
        with _progress(len(rows)) as checked:
            return await check(engine, rows, model, rule, at_once=engine.capacity, checked=checked)
    finally:
        await engine.close()


@contextmanager
def _progress(rows: int) -> Iterator[Callable[[], object]]:
    """A bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("verify:"), BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=people, disable=not people.is_terminal) as bar:
        task = bar.add_task("rows", total=rows)
        yield lambda: bar.advance(task)


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{json.dumps(to_json(report))}\n")
        return
    console = Console(width=_WIDTH, highlight=False, emoji=False)
    if (made := table(report)) is not None:
        console.print(made)
    for sentence in sentences(report):
        console.print(printable(sentence), markup=False, soft_wrap=True)


def _fail(error: Exception, code: ExitCode) -> ExitCode:
    sys.stderr.write(f"worker verify: {printable(' '.join(str(error).split()))}\n")
    return code
