"""What `worker run` can be told: by flag, by `MINEDRAFT_*` variable, by TOML file; the first that says it wins."""

import argparse
import os
import tomllib
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from producer.record.models import TARGET
from worker.engine.placement import parse_devices
from worker.flag_help import add_argument

#: Read when no `--config` is given and it lies in the working directory.
DEFAULT_CONFIG = Path("minedraft.toml")

#: Where a worker's metrics are when no port is asked for; the next free port when it is taken.
DEFAULT_METRICS_PORT = 9410


#: Memory.
_Gib = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class UsageError(Exception):
    """The user asked for something that cannot be; the message is one line, the exit code 2."""


def _devices(text: str | None) -> str | None:
    if text is not None:
        parse_devices(text)
    return text


class _WorkersToml(TomlConfigSettingsSource):
    """The TOML file without the table of `producer submit`."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return {name: value for name, value in super()._read_file(file_path).items() if name != "submit"}


class RunSettings(BaseSettings):
    """Answer the rows of jobs in Redis until stopped (SIGTERM or Ctrl-C: drain; again: at once)."""

    model_config = SettingsConfigDict(
        env_prefix="MINEDRAFT_",
        extra="forbid",
        cli_prog_name="worker run",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_shortcuts={"redis-url": "redis"},
        env_ignore_empty=True,
    )

    config: Annotated[Path | None, Field(description="TOML file with these settings (default: ./minedraft.toml)")] = (
        None
    )
    redis_url: Annotated[
        str | None,
        Field(description="redis://, rediss://, unix:// or sentinel:// URL (default: this user's embedded server)"),
    ] = None
    mode: Annotated[
        Literal["ar", "sd", "psd", "pearl", "auto"],
        Field(
            description="psd: two overlapped batches; pearl: one batch, drafted ahead; auto: as is fastest by measured "
            "times; sd: vLLM's own speculative decoding; ar: no drafts"
        ),
    ] = "psd"
    plan: Annotated[
        Path | None,
        Field(description="file of `worker plan --save`: mode, devices and drafts, where nothing else says them"),
    ] = None
    engine: Annotated[
        Literal["vllm", "fake"], Field(description="vllm: the real one; fake: made-up text, for tests of the queue")
    ] = "vllm"
    model: Annotated[
        str | None,
        Field(description="folder or name of the target model (default: the embedded SmolLM2-135M-Instruct)"),
    ] = None
    draft_model: Annotated[
        str | None,
        Field(description="folder or name of the draft model (not of ar; default: for the embedded target, its own)"),
    ] = None
    served_model_name: Annotated[
        str | None,
        Field(
            description="the name that jobs and rows ask for "
            f"(default: --model as given, `{TARGET}` for the embedded one; `{TARGET}` always works)"
        ),
    ] = None
    tensor_parallel_size: Annotated[
        PositiveInt,
        Field(description="devices that share the target model (on GPUs psd and auto need one more, to draft)"),
    ] = 1
    num_speculative_tokens: Annotated[
        PositiveInt | None,
        Field(description="tokens drafted a step, in auto at most (default: 1, in pearl 2, in auto 5)"),
    ] = None
    draft_sample_method: Annotated[
        Literal["greedy", "probabilistic"],
        Field(description="drafts for sampled rows: the likeliest tokens, or drawn from the draft model"),
    ] = "greedy"
    draft_source: Annotated[
        Literal["model", "ngram", "suffix", "mixed"],
        Field(
            description="where drafts are from: the draft model, the row's own text, rows of its job that are done, "
            "or what was right most often (psd, auto)"
        ),
    ] = "model"
    draft_length: Annotated[
        Literal["fixed", "adaptive"],
        Field(description="drafts of a row that are verified: all, or as many as pay (psd, pearl, auto)"),
    ] = "fixed"
    verify: Annotated[
        Literal["all", "tetris", "confidence"],
        Field(
            description="drafts of all rows that are verified: all, those likeliest to be accepted, or as many of "
            "these as pay (psd, pearl, auto)"
        ),
    ] = "all"
    extra_drafts: Annotated[
        NonNegativeInt, Field(description="of --num-speculative-tokens, those that --verify tetris leaves out")
    ] = 0
    max_num_seqs: Annotated[
        PositiveInt | None,
        Field(description="rows that run at once, those of both batches (default: 16 on CPUs, 256 on GPUs)"),
    ] = None
    verifier_cpus: Annotated[
        str | None,
        AfterValidator(_devices),
        Field(description="cores of the target model, as 0,2-5; divided among its ranks (default: a fair share)"),
    ] = None
    drafter_cpus: Annotated[
        str | None,
        AfterValidator(_devices),
        Field(description="cores of the draft model (psd, pearl, auto; default: a fair share)"),
    ] = None
    kv_cache_gib: Annotated[
        _Gib | None,
        Field(
            description="memory of the target model's KV cache on each device "
            "(default: on CPUs an eighth of what is free, 1 to 4 GiB; on GPUs what vLLM finds free)"
        ),
    ] = None
    drafter_kv_cache_gib: Annotated[
        _Gib | None,
        Field(description="memory of the draft model's KV cache (psd, pearl, auto; default: as much as the target's)"),
    ] = None
    drafter_gpu_memory_utilization: Annotated[
        float | None,
        Field(
            gt=0, le=1, description="share of its GPU for the draft model (psd, auto on GPUs; default: as a verifier's)"
        ),
    ] = None
    link: Annotated[
        Literal["nccl", "host"] | None,
        Field(
            description="what carries drafts: nccl from GPU to GPU, or host memory "
            "(psd, auto; default: nccl on GPUs, host on CPUs)"
        ),
    ] = None
    engine_args: Annotated[
        str, Field(description="anything else for the engine, in `vllm serve`'s own flags: ='--max-model-len 4096'")
    ] = ""
    metrics_host: Annotated[str, Field(description="address that /metrics listens on")] = "127.0.0.1"
    metrics_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description=f"port of /metrics, 0 for any free one (default: {DEFAULT_METRICS_PORT} or the next free one)",
        ),
    ] = None
    drain_seconds: Annotated[
        PositiveFloat, Field(description="how long rows in the engine may take to end after SIGTERM")
    ] = 30.0
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Field(description="what is logged")] = "info"

    @property
    def served(self) -> str:
        """The name by which jobs are routed to this worker."""
        return self.served_model_name or self.model or TARGET

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags (they come first by themselves), then variables, then the TOML file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _WorkersToml(settings_cls)


def read_settings(argv: Sequence[str]) -> RunSettings:
    """The settings of `worker run ARGV...`; `--help` prints them and exits.

    Raises:
        UsageError: a flag, variable or TOML entry is unknown or has an impossible value.
    """
    return read_command(RunSettings, argv, flags=RunSettings.model_fields)


Settings = TypeVar("Settings", bound=RunSettings)


def read_command(kind: type[Settings], argv: Sequence[str], *, flags: Collection[str]) -> Settings:
    """The settings of a command that starts an engine; `--help` prints them and exits.

    Args:
        kind: what they are.
        argv: the command line.
        flags: those of them that the command line may name. Variables and the TOML file may name them all, for they
            are a worker's, too.

    Raises:
        UsageError: a flag, variable or TOML entry is unknown or has an impossible value.
    """
    # The configuration is the new class's own: what it says of its file does not reach `kind`.
    configured = create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__)
    configured.model_config["toml_file"] = _config_file(argv)

    def add(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
        if "--help" in names or options.get("dest", names[0]).replace("-", "_") in flags:
            add_argument(parser, *names, **options)

    try:
        source: CliSettingsSource[RunSettings] = CliSettingsSource(
            configured, cli_parse_args=list(argv), cli_exit_on_error=False, add_argument_method=add
        )
        return configured(_cli_settings_source=source)
    except ValidationError as error:
        raise UsageError(_one_line(error)) from None
    except SettingsError as error:
        raise UsageError(" ".join(str(error).removeprefix("error parsing CLI: ").split())) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration file is not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"the configuration file cannot be read: {error}") from None


def _config_file(argv: Sequence[str]) -> Path | None:
    """The TOML file to read: it must be known before the settings in it can be."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path, default=os.environ.get("MINEDRAFT_CONFIG"))
    with suppress(argparse.ArgumentError):  # said by the real parser
        asked: Path | None = parser.parse_known_args(argv)[0].config
        if asked and not Path(asked).is_file():
            raise UsageError(f"--config: there is no file {asked}")
        return asked or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    return None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if first["type"] == "extra_forbidden":
        meant = name.replace("-", "_")
        hint = f" (in TOML it is {meant})" if meant != name and meant in RunSettings.model_fields else ""
        return f"{name}: there is no such setting{hint}"
    return f"--{name.replace('_', '-')}: {first['msg'].removeprefix('Value error, ')} (not {first['input']!r})"
