"""What `worker verify` can be told: a worker's settings, and which answers to look at."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from pydantic_settings import CliPositionalArg, CliToggleFlag, SettingsConfigDict

from producer.cli.defaults import job_defaults
from worker.settings import RunSettings, UsageError, read_command

#: What plain decoding has of a worker's settings. The others are of drafts and of the queue: a worker's variables and
#: its TOML file may hold them, and they do nothing here.
_PLAIN = (
    "config",
    "redis_url",
    "engine",
    "model",
    "served_model_name",
    "tensor_parallel_size",
    "max_num_seqs",
    "verifier_cpus",
    "kv_cache_gib",
    "engine_args",
    "log_level",
)
#: Gaps are measured between the numbers that decide: logits after penalties, biases and masks. No token that is sampled
#: depends on this. The sums of beam search do.
_LOGITS = "--logprobs-mode processed_logits"


class VerifySettings(RunSettings):
    """Did speculation change anything? Answers some rows of a job again, in plain decoding, and compares.

    Give it the flags that the job's workers had (--model, --engine-args and so on), the file that was submitted and
    the answers: those of JOB in Redis, or a file of them. Exit code 0: all the same, but for float ties; 1: something
    is different; 2: usage, or nothing to compare; 3: Redis.
    """

    model_config = SettingsConfigDict(
        cli_prog_name="worker verify", cli_shortcuts={"redis-url": "redis", "as-json": "json"}
    )

    job: Annotated[CliPositionalArg[str | None], Field(description="a job's id: its answers are in Redis")] = None
    input: Annotated[
        Path | None, Field(description="the file that was submitted: an answered row is in no other place")
    ] = None
    results: Annotated[
        Path | None, Field(description="the answers, in place of JOB: a file that `producer results` wrote")
    ] = None
    defaults: Annotated[
        str | None, Field(description="with --results: what the job was submitted with, an object in JSON or its file")
    ] = None
    chat_template: Annotated[Path | None, Field(description="the same, a file")] = None
    chat_template_kwargs: Annotated[str | None, Field(description="the same, an object in JSON or its file")] = None
    rows: Annotated[PositiveInt, Field(description="how many to answer again, chosen at random")] = 100
    seed: Annotated[int, Field(description="another seed chooses other rows")] = 0
    tie_gap: Annotated[
        NonNegativeFloat | None,
        Field(
            allow_inf_nan=False,
            description="a difference where plain decoding's logits are closer than this is a float tie "
            "(default: what the model's dtype rounds away)",
        ),
    ] = None
    as_json: Annotated[CliToggleFlag[bool], Field(description="print one JSON object instead of text")] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="what is logged, by vLLM too")
    ] = "error"

    @property
    def submitted(self) -> Path:
        """The submitted file."""
        assert self.input is not None
        return self.input

    @property
    def job_defaults(self) -> dict[str, Any]:
        """What the rows of a results file ask for that do not say otherwise.

        Raises:
            Refused: it is nothing that a job can be submitted with.
            UsageError: a file cannot be read.
        """
        try:
            return job_defaults(self.defaults, self.chat_template, self.chat_template_kwargs)
        except OSError as error:
            raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None


def read_settings(argv: Sequence[str]) -> VerifySettings:
    """The settings of `worker verify ARGV...`; `--help` prints them and exits.

    Raises:
        UsageError: a flag, variable or TOML entry is unknown or has an impossible value, or they do not go together.
        Refused: the defaults are nothing that a job can be submitted with.
    """
    own = VerifySettings.model_fields.keys() - RunSettings.model_fields.keys()
    settings = read_command(VerifySettings, argv, flags={*_PLAIN, *own})
    if (settings.job is None) == (settings.results is None):
        raise UsageError("name the answers: a JOB whose results are in Redis, or --results FILE, one of them")
    asked = (settings.defaults, settings.chat_template, settings.chat_template_kwargs)
    if settings.job is not None and any(option is not None for option in asked):
        raise UsageError("--defaults and chat templates are for --results: what a job was submitted with is in Redis")
    _ = settings.job_defaults  # a file that is missing is told before anything takes time
    if settings.input is None:
        raise UsageError(
            "--input FILE is missing: answered rows leave Redis, so the submitted file says what was asked"
        )
    for flag, path in (("--input", settings.input), ("--results", settings.results)):
        if path is not None and not path.is_file():  # a pipe could be read only once
            raise UsageError(f"{flag}: there is no file {path}")
    return settings


def plain_settings(settings: VerifySettings) -> VerifySettings:
    """The same for an engine without drafts."""
    fields = RunSettings.model_fields
    without = {name: field.default for name, field in fields.items() if name not in _PLAIN}
    return settings.model_copy(update={**without, "mode": "ar"})


def with_logits(settings: VerifySettings) -> VerifySettings:
    """The same for an engine that tells its logits where it is asked for `logprobs`."""
    if settings.engine == "fake":
        return settings
    return settings.model_copy(update={"engine_args": f"{_LOGITS} {settings.engine_args}".strip()})
