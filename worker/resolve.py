"""From what was asked for to what is done: a plan's placement, the mode, and whether its strategy goes."""

from dataclasses import dataclass
from typing import Any, Literal

from worker import plan_file
from worker.engine import platform, vllm_args
from worker.plan_file import PlanFileError
from worker.settings import RunSettings, UsageError
from worker.strategies.seam import Strategy

#: Modes of the two-batch engine, which have strategies.
_STRATEGIC = ("psd", "pearl", "auto")
#: Tokens drafted a step, where nobody says how many: `pearl` needs one to guess with, and `auto` room to choose.
_DRAFTS = {"pearl": 2, "auto": 5}
#: Settings of strategies beside the mode.
_FLAGS = ("draft_source", "draft_length", "verify", "extra_drafts")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is done.

    Attributes:
        settings: with a mode that goes, and a number of drafts.
        said: what was decided in the user's place, a line each.
    """

    settings: RunSettings
    said: tuple[str, ...] = ()


def resolve(settings: RunSettings) -> Resolved:
    """What a worker with these settings does; nothing is started to find that out.

    Raises:
        UsageError: they do not go together, or the plan's file is none.
    """
    settings, said = _with_plan(settings)
    if settings.mode == "auto" and settings.engine == "vllm" and settings.model and not settings.draft_model:
        said.append("mode ar: there is no draft model for auto to choose anything else (--draft-model)")
        without = {name: RunSettings.model_fields[name].default for name in _FLAGS}
        asked = [f"--{name.replace('_', '-')}" for name, usual in without.items() if getattr(settings, name) != usual]
        if asked:
            said.append(f"mode ar: {', '.join(asked)} without effect")
        settings = settings.model_copy(update={**without, "mode": "ar"})
    if settings.mode not in _STRATEGIC:
        for name in _FLAGS:
            if getattr(settings, name) != RunSettings.model_fields[name].default:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} is of the modes {', '.join(_STRATEGIC)}, not of {settings.mode}")
    drafts = drafted(settings)
    fault = vllm_args.strategy_fault(strategy(settings), drafts, "V1" if platform.is_cpu_build() else "V2")
    if fault is not None:
        raise UsageError(fault)
    return Resolved(settings.model_copy(update={"num_speculative_tokens": drafts}), tuple(said))


def engine_mode(settings: RunSettings) -> Literal["ar", "sd", "psd"]:
    """Which engine a mode has: `pearl` and `auto` are strategies of the two-batch one."""
    return settings.mode if settings.mode in ("ar", "sd") else "psd"


def drafted(settings: RunSettings) -> int:
    """Tokens drafted a step, at most."""
    return settings.num_speculative_tokens or _DRAFTS.get(settings.mode, 1)


def strategy(settings: RunSettings) -> Strategy:
    """The strategy of the two-batch engine; of modes that have none, the plain one."""
    mode = settings.mode if settings.mode in _STRATEGIC else "psd"
    return Strategy(mode, settings.draft_source, settings.draft_length, settings.verify, settings.extra_drafts)


def _with_plan(settings: RunSettings) -> tuple[RunSettings, list[str]]:
    """The settings, with the plan's where nobody said otherwise, and what to say of it."""
    if settings.plan is None:
        return settings, []
    try:
        plan = plan_file.read(settings.plan)
    except PlanFileError as error:
        raise UsageError(f"--plan: {error}") from None
    except OSError as error:
        raise UsageError(f"--plan: cannot read {settings.plan}: {error.strerror}") from None
    planned: dict[str, Any] = {"mode": plan.mode, "tensor_parallel_size": plan.tensor_parallel_size}
    if plan.num_speculative_tokens:
        planned["num_speculative_tokens"] = plan.num_speculative_tokens
    taken = {name: value for name, value in planned.items() if name not in settings.model_fields_set}
    said = [f"plan {settings.plan}: {', '.join(f'{name} {value}' for name, value in taken.items()) or 'nothing'}"]
    said += [
        f"plan {settings.plan}: {name} {value} was planned, {getattr(settings, name)} was asked for"
        for name, value in planned.items()
        if name not in taken and value != getattr(settings, name)
    ]
    return settings.model_copy(update=taken), said
