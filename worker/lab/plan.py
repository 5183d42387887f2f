"""`worker plan`: what each way to use devices gives, with which number of drafts, and whether two batches pay.

Pure: from timings, imagined or measured, to numbers and words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from worker.lab.advice import advice
from worker.lab.predict import Prediction, Workload, predict
from worker.lab.profile import Profile
from worker.lab.result import Bench, Mode, Scenario
from worker.lab.timings import ProfileTimings, Timings, WithDrafter

#: What the paper tried.
DRAFTS = range(1, 6)


@dataclass(frozen=True, slots=True)
class Copies:
    """A way to use a number of devices: as many copies of a scenario as they hold.

    Attributes:
        prediction: of one copy.
        copies: how many.
        idle_devices: left over.
    """

    prediction: Prediction
    copies: int
    idle_devices: int

    @property
    def tokens_per_s(self) -> float:
        """Of all copies together, with the prompts."""
        return self.copies * self.prediction.tokens_per_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What to expect.

    Attributes:
        best: each scenario with the number of drafts that gives it the most `tokens_per_s`.
        every: each scenario with each number of drafts.
        advice: a sentence or two in plain words.
    """

    best: tuple[Prediction, ...]
    every: tuple[Prediction, ...]
    advice: tuple[str, ...]

    def on(self, devices: int) -> tuple[Copies, ...]:
        """What somebody with so many devices can do with them, the most tokens/s first.

        This is where two batches meet data parallelism: the same devices as copies of something smaller.
        """
        ways = (Copies(prediction, *divmod(devices, prediction.scenario.devices)) for prediction in self.best)
        return tuple(sorted((way for way in ways if way.copies), key=lambda way: -way.tokens_per_s))


@dataclass(frozen=True, slots=True)
class Fleet:
    """A pair's timings by where the target is, and whether the drafter has a device of its own.

    Attributes:
        devices: N, the target's; `psd` has one more for the drafter.
        on_n: the target on these.
        on_all: on N + 1; None: it cannot be divided so.
        on_one: on one; None: it does not fit there.
        two: the target on N and the drafter on its own, for `psd`; None: as `on_n`.
    """

    devices: int
    on_n: Timings
    on_all: Timings | None = None
    on_one: Timings | None = None
    two: Timings | None = None

    def at(self, scenario: Scenario) -> Timings | None:
        """Of a scenario's devices; None where that is not known."""
        if scenario.mode == "psd":
            return (self.two or self.on_n) if scenario.devices == self.devices + 1 else None
        return {1: self.on_one, self.devices + 1: self.on_all, self.devices: self.on_n}.get(scenario.devices)

    def with_drafter(self, share: float) -> "Fleet":
        """The same with a drafter that takes this share of the time."""
        return replace(
            self,
            on_n=WithDrafter(self.on_n, share),
            on_all=self.on_all and WithDrafter(self.on_all, share),
            on_one=self.on_one and WithDrafter(self.on_one, share),
            two=self.two and WithDrafter(self.two, share),
        )


def fleet_of(profile: Profile, host: Mapping[Mode, float] | None = None) -> Fleet:
    """A profile's devices.

    Args:
        profile: which.
        host: for each mode, what a step takes beside V and t and nothing hides, in ms.
    """
    two = ProfileTimings(profile, host or {})
    on_n = two.solo(profile.target)
    assert on_n is not None
    return Fleet(
        devices=profile.devices,
        on_n=on_n,
        on_all=two.solo(profile.target_on_all),
        on_one=replace(two, profile=replace(profile, target=profile.target_on_one))
        if profile.devices > 1 and profile.target_on_one
        else None,
        two=two,
    )


def plan(fleet: Fleet, *, in_flight: int, workload: Workload, drafts: Sequence[int] = DRAFTS) -> Plan:
    """Predict every way to answer rows with a pair of models.

    Args:
        fleet: the pair on its devices.
        in_flight: rows at once, 2m; also of each copy on a single device.
        workload: the rows.
        drafts: numbers of drafts to try, at least one, each above 0.
    """
    every = tuple(_predictions(fleet, in_flight, workload, drafts))
    best = _best(every)

    def with_drafter(share: float) -> tuple[Prediction, ...]:
        return _best(_predictions(fleet.with_drafter(share), in_flight, workload, drafts))

    return Plan(best, every, advice(best, with_drafter))


def predict_bench(bench: Bench, fleet: Fleet, workload: Workload) -> tuple[Prediction, ...]:
    """Predict a bench's scenarios, but `run-batch` and those whose target is where the fleet's is not.

    Args:
        bench: whose scenarios.
        fleet: its pair.
        workload: its rows.
    """
    scenarios = [result.scenario for result in bench.results if result.scenario.mode != "run-batch"]
    timings = [fleet.at(scenario) for scenario in scenarios]
    return tuple(predict(at, scenario, workload) for at, scenario in zip(timings, scenarios, strict=True) if at)


def _predictions(fleet: Fleet, in_flight: int, workload: Workload, drafts: Sequence[int]) -> Iterable[Prediction]:
    n, m = fleet.devices, (in_flight + 1) // 2
    ways: list[tuple[str, Mode, int, int, Timings | None]] = [
        ("ar", "ar", in_flight, n, fleet.on_n),
        ("sd(m)", "sd", m, n, fleet.on_n),
        ("sd(2m)", "sd", in_flight, n, fleet.on_n),
        ("psd(2m)", "psd", in_flight, n + 1, fleet.two or fleet.on_n),
        ("ar(all)", "ar", in_flight, n + 1, fleet.on_all),
        ("sd(all)", "sd", in_flight, n + 1, fleet.on_all),
        ("ar(one)", "ar", in_flight, 1, fleet.on_one),
        ("sd(one)", "sd", in_flight, 1, fleet.on_one),
    ]
    for name, mode, rows, devices, timings in ways:
        for count in (0,) if mode == "ar" else drafts:
            if timings is not None:
                yield predict(timings, Scenario(name, mode, rows, count, devices), workload)


def _best(predictions: Iterable[Prediction]) -> tuple[Prediction, ...]:
    best: dict[str, Prediction] = {}
    for one in predictions:
        name = one.scenario.name
        if name not in best or one.tokens_per_s > best[name].tokens_per_s:
            best[name] = one
    return tuple(best.values())
