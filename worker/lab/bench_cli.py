"""The command `worker bench`."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from producer.record.models import Row
from worker.lab import figure, flags, pairs, paper, prompts, report
from worker.lab.bench import CONTEXT, DEFAULT_SCENARIOS, SCENARIOS, BenchError, Wanted, measure
from worker.lab.pairs import PairError
from worker.lab.pictures import PictureError, require_matplotlib
from worker.lab.plan import fleet_of, plan
from worker.lab.predict import Workload
from worker.lab.profile import Profile
from worker.lab.profiles import ProfileError, names, profile
from worker.lab.prompts import PromptError
from worker.lab.result import Bench
from worker.lab.sides import SideError
from worker.models.errors import ModelError

_FOR = """\
Answers the same rows in every way there is, in turns, with every engine kept alive:
  run-batch   vLLM's own program, plain decoding
  ar          plain decoding, 2m rows in flight
  sd(m)       vLLM's own speculative decoding, m rows in flight
  sd(2m)      the same with 2m
  sd(all)     the same on all devices, the drafter's too
  psd(2m)     two overlapped batches, 2m rows in flight: m are verified while others are drafted for
  psd+X(2m)   the same with a strategy X: tetris (two drafts more), confidence, adaptive, ngram, suffix or mixed
                                                      (only when asked for; `worker strategies` says what they are)
  pearl(2m)   one batch, drafted ahead for            (only when asked for)
  auto(2m)    whichever is fastest by measured times  (only when asked for)
  ar(all)     plain decoding on all devices           (only when asked for)
  psd(redis)  psd(2m), and rows come through Redis    (only when asked for)
  ar(redis)   the same of ar                          (only when asked for)
"""
#: A tiny vocabulary makes two or three tokens of a word, and a context holds 2,048.
_PROMPT_CHARS = "600"
#: Characters that a table of all scenarios takes.
_WIDTH = 160
#: Tokens of a prompt that the plan's best number of drafts is for.
_PLANNED_PROMPT = 100


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        prog="worker bench", description=_FOR, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(
        "--pair",
        default="embedded",
        help="`embedded`, or random models of so many million parameters: synthetic:TARGET/DRAFT[,noise=0.1]",
    )
    made.add_argument("--model", help="folder of a target model of your own, with --draft-model")
    made.add_argument("--draft-model", help="folder of its draft model")
    made.add_argument("--virtual", metavar="PROFILE", help=f"imagined devices: {', '.join(names())}")
    made.add_argument(
        "-m", type=flags.counts, default=(8,), help="rows verified together; several as 8,16 (default: 8)"
    )
    made.add_argument("-k", type=flags.count, help="drafted tokens a step (default: 1; with --virtual the plan's best)")
    made.add_argument("--rows", type=flags.count, help="how many rows (default: 8 times m; of --prompts, all)")
    made.add_argument(
        "--tokens",
        type=flags.lengths,
        metavar="N or A..B",
        default="64",
        help="tokens of each answer, or any number from A to B (default: 64; rows of --prompts have their own)",
    )
    made.add_argument("--turns", type=flags.count, default=3, help="turns of each way (default: 3)")
    made.add_argument(
        "--scenarios", type=_scenarios, default=DEFAULT_SCENARIOS, help="ways to measure, as ar,sd(m),psd(2m)"
    )
    made.add_argument(
        "--categories", default="", help=f"of Spec-Bench (default: all): {', '.join(prompts.categories())}"
    )
    made.add_argument(
        "--prompt-chars",
        type=flags.lengths,
        metavar="N or A..B",
        default=_PROMPT_CHARS,
        help="cut Spec-Bench's questions to N characters, or each to any number from A to B (default: 600)",
    )
    made.add_argument("--prompts", type=Path, help="a file of rows of your own in place of Spec-Bench")
    made.add_argument(
        "--verifier-cpus", type=flags.cpus, help="cores that are the target's device (default: the first half)"
    )
    made.add_argument(
        "--drafter-cpus", type=flags.cpus, help="cores that are the drafter's device (default: the others)"
    )
    made.add_argument("--engine-args", default="", help="anything else for every engine, in `vllm serve`'s flags")
    made.add_argument("--json", type=Path, metavar="FILE", help="leave the numbers here (with several m: FILE-mM)")
    made.add_argument("--png", type=Path, metavar="FILE", help="leave a picture here (the same)")
    made.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep logs, and stage records as FOLDER/mM/WAY.npz for `worker trace --load`",
    )
    return made


def run(argv: Sequence[str]) -> int:
    """Measure and print; 1 when the machine was not quiet, 2 when it cannot be done."""
    asked = parser().parse_args(argv)
    benches = []
    try:
        if asked.png:
            require_matplotlib()
        for path in filter(None, (asked.json, asked.png)):
            if not path.parent.is_dir() or path.is_dir():
                raise BenchError(f"{path} cannot be a file")
        for m in asked.m:
            with ExitStack() as stack:
                folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
                folder = folder / f"m{m}"
                folder.mkdir(parents=True, exist_ok=True)
                bench = measure(_wanted(asked, m), folder, _say)
            _show(asked, bench, m)
            benches.append(bench)
        if asked.virtual and paper.published(asked.virtual) and {"sd(m)", "psd(2m)"} <= set(asked.scenarios):
            _console().print(paper.table(asked.virtual, benches))
        if asked.virtual:
            _console().print(f"VIRTUAL: {profile(asked.virtual).assumption}", highlight=False)
    except SideError as error:
        return _fail(f"{error} (--keep FOLDER keeps all that the engines say; --scenarios starts fewer at once)")
    except (BenchError, PairError, PictureError, ProfileError, PromptError, ModelError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    return 0 if all(bench.quiet for bench in benches) else 1


def _wanted(asked: argparse.Namespace, m: int) -> Wanted:
    imagined = profile(asked.virtual, asked.k or 1) if asked.virtual else None
    verifier_cpus, drafter_cpus = _devices(asked) if imagined is None else ((), ())
    rows = _rows(asked, m)
    target, draft = _models(asked)
    if not asked.prompts and "--max-model-len" not in asked.engine_args:
        prompts.check_context(rows, Path(target), CONTEXT)
    words = asked.virtual or (asked.model and f"{asked.model} with {asked.draft_model}") or asked.pair
    return Wanted(
        pair=words,
        target=target,
        draft=draft,
        m=m,
        drafts=_drafts(asked, imagined, m),
        rows=rows,
        turns=asked.turns,
        scenarios=asked.scenarios,
        profile=imagined,
        verifier_cpus=verifier_cpus,
        drafter_cpus=drafter_cpus,
        engine_args=asked.engine_args,
    )


def _drafts(asked: argparse.Namespace, imagined: Profile | None, m: int) -> dict[str, int]:
    """Of each scenario; with a published profile what the plan says is its best, as the paper takes the best."""
    speculating = {name: way for name, way in SCENARIOS.items() if way.mode in ("sd", "psd")}
    if asked.k or imagined is None or asked.virtual.startswith("flat:"):
        return {name: way.drafts(asked.k or 1, told=bool(asked.k)) for name, way in speculating.items()}
    workload = Workload(_PLANNED_PROMPT, (asked.tokens[0] + asked.tokens[-1]) // 2)  # the mean row
    best = plan(fleet_of(imagined), in_flight=2 * m, workload=workload).best
    drafts = {prediction.scenario.name: prediction.scenario.drafts for prediction in best}
    usual = {name: drafts.get(name, drafts["psd(2m)"]) for name in speculating}
    return {name: way.drafts(usual[name], told=False) for name, way in speculating.items()}


def _models(asked: argparse.Namespace) -> tuple[str, str]:
    if asked.virtual and (asked.model or asked.draft_model):
        raise BenchError("--virtual needs no --model: imagined devices have a tiny one")
    if asked.virtual:
        tiny = str(pairs.tiny(say=_say))
        return tiny, tiny
    if (asked.model is None) != (asked.draft_model is None):
        raise BenchError("--model and --draft-model go together")
    if asked.model is not None:
        return asked.model, asked.draft_model
    target, draft = pairs.pair(asked.pair, say=_say)
    return str(target), str(draft)


def _devices(asked: argparse.Namespace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("two devices need two cores at least")
    verifier: tuple[int, ...] = asked.verifier_cpus or tuple(cores[: len(cores) // 2])
    drafter: tuple[int, ...] = asked.drafter_cpus or tuple(core for core in cores if core not in verifier)
    if not drafter or set(verifier) & set(drafter):
        raise BenchError("the target's and the drafter's device need cores of their own")
    if foreign := {*verifier, *drafter} - set(cores):
        raise BenchError(f"this process may not use core {min(foreign)}")
    return verifier, drafter


def _rows(asked: argparse.Namespace, m: int) -> list[Row]:
    if asked.prompts:
        return prompts.from_file(asked.prompts)[: asked.rows]
    chosen = [name.strip() for name in asked.categories.split(",") if name.strip()]
    return prompts.rows(chosen, asked.rows or 8 * m, asked.tokens, max_prompt_chars=asked.prompt_chars)


def _show(asked: argparse.Namespace, bench: Bench, m: int) -> None:
    _console().print(report.table(bench))
    if asked.json:
        _of(asked.json, asked.m, m).write_text(f"{report.to_json(bench)}\n", encoding="utf-8")
    if asked.png:
        figure.draw(bench, _of(asked.png, asked.m, m))


def _of(path: Path, all_m: Sequence[int], m: int) -> Path:
    return path if len(all_m) == 1 else path.with_stem(f"{path.stem}-m{m}")


def _console() -> Console:
    return Console(width=_WIDTH)  # whatever the terminal's: a table that is cut says nothing


def _say(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")


def _fail(message: str) -> int:
    sys.stderr.write(f"worker bench: {' '.join(message.split())}\n")
    return 2


def _scenarios(text: str) -> tuple[str, ...]:
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"there is no {name!r}; there are: {', '.join(SCENARIOS)}")
    return tuple(name for name in SCENARIOS if name in chosen)
