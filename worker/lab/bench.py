"""`worker bench`: the ways to answer rows, side by side, in one run.

Every scenario has an engine of its own. All are started first and stay up, then they take turns, in another order each
time: whatever drifts on the machine hits all of them. An idle engine's processes sleep.
"""

import json
import os
import platform as machine_info
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from producer.record.models import Row
from worker.engine.vllm_args import VllmOptions
from worker.lab import modes
from worker.lab.profile import Profile
from worker.lab.quiet import Watch, check
from worker.lab.result import Bench, Mode, Result, Scenario, Turn
from worker.lab.side_common import Told
from worker.lab.sides import Setup, Side
from worker.strategies.seam import Strategy

#: Every turn must compute everything: nothing of the turn before may be reused.
_EACH_TURN_ANEW = "--no-enable-prefix-caching"
#: Memory of each rank's KV cache, in GiB: all engines are up at once.
_KV_CACHE_GIB = "1"
#: What the engine's strategy is unless a scenario says so.
_PLAIN = Strategy()
#: Tokens that `auto` may draft for each row, unless told: more than is best where drafts are seldom accepted.
_AUTO_DRAFTS = 5
#: What a row's prompt and answer may have together, unless told (`--engine-args`).
CONTEXT = 2048

Say = Callable[[str], None]


class BenchError(Exception):
    """What was asked for cannot be measured; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure.

    Attributes:
        pair: in words.
        target: folder or name of the target model.
        draft: folder or name of the draft model.
        m: rows that are verified together.
        drafts: drafted tokens a step, by the name of the scenario; none where it is not there.
        rows: what is answered.
        turns: of each scenario.
        scenarios: their names (`SCENARIOS`).
        profile: of imagined devices; None: this machine's.
        verifier_cpus: this machine's "target device".
        drafter_cpus: this machine's "drafter device".
        engine_args: more flags for every engine.
    """

    pair: str
    target: str
    draft: str
    m: int
    drafts: Mapping[str, int]
    rows: Sequence[Row]
    turns: int
    scenarios: Sequence[str]
    profile: Profile | None = None
    verifier_cpus: tuple[int, ...] = ()
    drafter_cpus: tuple[int, ...] = ()
    engine_args: str = ""

    @property
    def devices(self) -> int:
        """Of the target; the drafter has one more."""
        return self.profile.devices if self.profile else 1


class Way(NamedTuple):
    """A way to answer rows.

    Attributes:
        mode: the engine's.
        both: whether 2m rows are in flight, or m.
        everything: whether the drafter's device is used.
        program: what answers (`Told`).
        strategy: of mode `psd`.
    """

    mode: Mode
    both: bool = True
    everything: bool = False
    program: str = "engine"
    strategy: Strategy = _PLAIN

    def drafts(self, usual: int, *, told: bool) -> int:
        """How many tokens the drafter drafts for a row, at most.

        TETRIS drafts more and verifies as many in the mean; drafted ahead, one is a guess that is not verified; `auto`
        chooses how many.

        Args:
            usual: drafts of the other ways.
            told: whether the user said so.
        """
        if self.strategy.mode == "auto" and not told:
            return max(usual, _AUTO_DRAFTS)
        return max(usual, 2) if self.strategy.mode == "pearl" else usual + self.strategy.extra


def _two(strategy: Strategy = _PLAIN, program: str = "engine") -> Way:
    return Way("psd", everything=True, program=program, strategy=strategy)


#: In the order of the table. In `all`, the target has the drafter's device, too.
SCENARIOS = {
    "run-batch": Way("run-batch", program="run-batch"),
    "ar": Way("ar"),
    "sd(m)": Way("sd", both=False),
    "sd(2m)": Way("sd"),
    "sd(all)": Way("sd", everything=True),
    "ar(all)": Way("ar", everything=True),
    "psd(2m)": _two(),
    "psd+tetris(2m)": _two(Strategy(admission="tetris", extra=2)),
    "psd+confidence(2m)": _two(Strategy(admission="confidence")),
    "psd+adaptive(2m)": _two(Strategy(length="adaptive")),
    "psd+ngram(2m)": _two(Strategy(source="ngram")),
    "psd+suffix(2m)": _two(Strategy(source="suffix")),
    "psd+mixed(2m)": _two(Strategy(source="mixed")),
    "pearl(2m)": _two(Strategy(mode="pearl")),
    "auto(2m)": _two(Strategy(mode="auto")),
    "ar(redis)": Way("ar", program="queue"),
    "psd(redis)": _two(program="queue"),
}
#: The others say nothing about speculation, or something about a strategy.
DEFAULT_SCENARIOS = ("run-batch", "ar", "sd(m)", "sd(2m)", "sd(all)", "psd(2m)")


def scenario(wanted: Wanted, name: str) -> Scenario:
    """The scenario of that name."""
    way = SCENARIOS[name]
    return Scenario(
        name=name,
        mode=way.mode,
        in_flight=2 * wanted.m if way.both else wanted.m,
        drafts=wanted.drafts.get(name, 0),
        devices=wanted.devices + way.everything,
        strategy=way.strategy,
    )


def setups(wanted: Wanted, rows: Path) -> Iterator[Setup]:
    """What each side is; without those that cannot be, as where the target cannot be divided among all devices.

    Args:
        wanted: what to measure.
        rows: the file of its rows.
    """
    for name in wanted.scenarios:
        way = scenario(wanted, name)
        profile = wanted.profile
        if profile and way.mode != "psd":
            if way.devices > profile.devices and profile.target_on_all is None:
                continue
            profile = profile.solo(profile.target_on_all if way.devices > profile.devices else None)
        yield Setup(
            scenario=way,
            told=Told(
                program=SCENARIOS[name].program,
                options=_options(wanted, way),
                rows=rows,
                title=f"{name}, {wanted.pair}, m = {wanted.m}, k = {way.drafts}",
                virtual=profile is not None,
            ),
            variables={"VLLM_CPU_KVCACHE_SPACE": _KV_CACHE_GIB, **modes.variables(profile)},
        )


def _options(wanted: Wanted, way: Scenario) -> VllmOptions:
    imagined, mode = wanted.profile is not None, "ar" if way.mode == "run-batch" else way.mode
    everything = mode != "psd" and way.devices > wanted.devices
    classes = modes.classes(way.mode, virtual=imagined)
    cpus = () if imagined else (*wanted.verifier_cpus, *(wanted.drafter_cpus if everything else ()))
    return VllmOptions(
        model=wanted.target,
        served_model_name="target",
        mode=mode,
        draft_model=None if mode == "ar" else wanted.draft,
        num_speculative_tokens=way.drafts or 1,
        max_num_seqs=way.in_flight,
        verifier_cpus=cpus,
        drafter_cpus=wanted.drafter_cpus if mode == "psd" and not imagined else (),
        engine_args=" ".join(
            [_EACH_TURN_ANEW, f"--max-model-len {CONTEXT}", *classes.flags, wanted.engine_args]
        ).strip(),
        ranks=classes.ranks,
        strategy=way.strategy,
    )


def measure(wanted: Wanted, folder: Path, say: Say) -> Bench:
    """Run it.

    Args:
        wanted: what to measure.
        folder: gets the rows, the sides' logs, and the stage records of the last turn, `SCENARIO.npz` each.
        say: is told what goes on, a line each.

    Raises:
        BenchError: none of it can be measured.
        SideError: a side failed.
    """
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(_line(row))}\n" for row in wanted.rows), encoding="utf-8")
    asked = list(setups(wanted, rows))
    for name in set(wanted.scenarios) - {setup.scenario.name for setup in asked}:
        say(f"{name} is left out: these devices cannot do it")
    if not asked:
        raise BenchError("nothing is left to measure")
    say(f"starting {len(asked)} engines")
    sides: list[Side] = []
    try:
        for setup in asked:
            sides.append(Side(setup, folder / f"{setup.scenario.name}.log"))
        for side in sides:
            side.ready()
        disturbance = check()
        turns, disturbed = _take_turns(sides, wanted.turns, folder, say)
        disturbance = disturbance or disturbed
    finally:
        with ThreadPoolExecutor(len(asked)) as pool:  # each takes seconds to end
            list(pool.map(Side.close, sides))
    first = turns[asked[0].scenario.name][0]
    least, most = asked_tokens(wanted.rows)
    return Bench(
        pair=f"{wanted.pair}, m = {wanted.m}",
        virtual=wanted.profile is not None,
        rows=len(wanted.rows),
        max_tokens=round(first.tokens / len(wanted.rows)),
        quiet=not disturbance,
        disturbance=disturbance,
        results=tuple(Result(side.setup.scenario, tuple(turns[side.setup.scenario.name])) for side in sides),
        machine=f"{os.cpu_count()} cores, {machine_info.machine()}, Python {machine_info.python_version()}",
        least_tokens=least,
        most_tokens=most,
    )


def _take_turns(sides: Sequence[Side], count: int, folder: Path, say: Say) -> tuple[dict[str, list[Turn]], str]:
    """The turns of each scenario, and what disturbed one of them first, in words."""
    disturbance = ""
    turns: dict[str, list[Turn]] = {side.setup.scenario.name: [] for side in sides}
    for number in range(count):
        texts: dict[str, list[str]] = {}
        for side in [*sides[number % len(sides) :], *sides[: number % len(sides)]]:
            name = side.setup.scenario.name
            with Watch() as watch:
                turn, texts[name] = side.turn(folder / f"{name}.npz")
            if watch.use.disturbance and not disturbance:
                disturbance = f"in turn {number + 1} of {name}, {watch.use.disturbance}"
            turns[name].append(turn)
            say(f"turn {number + 1}, {name}: {turn.tokens_per_s:,.1f} tokens/s")
        if "ar" in texts:
            for name, own in texts.items():
                same = sum(one == other for one, other in zip(own, texts["ar"], strict=True)) / len(own)
                turns[name][-1] = replace(turns[name][-1], same_texts=same)
    return turns, disturbance


def asked_tokens(rows: Sequence[Row]) -> tuple[int, int]:
    """The least and the most that a row asks for; 0 where one does not say."""
    asked = [row.body.get("max_tokens") for row in rows]
    known = [count for count in asked if isinstance(count, int)]
    return (min(known), max(known)) if len(known) == len(rows) else (0, 0)


def _line(row: Row) -> dict[str, object]:
    return {"custom_id": row.custom_id, "method": "POST", "url": row.url, "body": {**row.body, "model": "target"}}
