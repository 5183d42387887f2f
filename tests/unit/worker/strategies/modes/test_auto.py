"""The mode that measures: it finds what is best, stays there, follows the load, and probes within its allowance."""

import time
from collections import Counter

import pytest
from devices import Devices

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.hosts import Hosts
from worker.strategies.modes.auto import Auto
from worker.strategies.modes.predict import step, step_ms, tokens_per_ms
from worker.strategies.modes.prompts import Prompts
from worker.strategies.modes.words import in_words
from worker.strategies.seam import Choice, Load, Way

PLAIN = Choice(Way.ONE, 0)
ALL = [Choice(way, drafts) for way in Way for drafts in range(6) if way is not Way.AHEAD or drafts > 1]


class Engine:
    """Does what a mode chooses, on devices; what it measures is known ten calls later."""

    def __init__(self, devices: Devices, *, ahead: bool = True) -> None:
        self.devices = devices
        self.costs, self.acceptance = Costs(), Acceptance()
        self.mode = Auto(5, self.costs, self.acceptance, Prompts(), ahead=ahead)
        self.now = PLAIN
        self.changes = 0
        self.measured: list[tuple[Way, int, int, int]] = []
        self.ms = self.gained = 0.0
        self.disturbed: dict[tuple[Way, bool], float] = {}  # what a way's next step takes beside its passes

    def run(self, rows: int, calls: int) -> Counter[Choice]:
        """So many calls with so many rows."""
        made: Counter[Choice] = Counter()
        for _ in range(calls):
            before, self.now = self.now, self.mode.choose(Load(rows, False, 256), self.now)
            self.changes += self.now != before
            made[self.now] += 1
            self._call(rows)
        return made

    def best(self, rows: int) -> float:
        """What the best choice would give."""
        return max(tokens_per_ms(choice, rows, self.devices, self.devices) or 0 for choice in ALL)

    def _call(self, rows: int) -> None:
        way, drafts = self.now
        made = step(self.now, rows, self.devices)
        self.ms += step_ms(self.now, made, self.devices) or 0.0
        self.gained += made.gained
        self.measured.append((way, drafts, max(1, round(made.rows)), max(1, round(made.tokens))))
        if len(self.measured) == 10:
            for one in self.measured:
                self._learn(*one)
            self.measured.clear()

    def _learn(self, way: Way, drafts: int, batch: int, tokens: int) -> None:
        self.costs.verified(batch, tokens, self.devices.verify_ms(batch, tokens))
        self.costs.drafted(batch, tokens, drafts, self.devices.draft_ms(batch, tokens, drafts))
        drafting = drafts > 0
        ms = self.devices.host_ms(way, drafting)
        if (way, drafting) in self.disturbed:
            ms = self.disturbed.pop((way, drafting))
        self.costs.waited(way, ms, drafting=drafting)
        if drafts:
            self.acceptance.add([200] * drafts, [200 * self.devices.accepted ** (at + 1) for at in range(drafts)])


def roofline(tokens: float) -> float:
    return 2 + max(20.0, tokens / 8)


DEVICES = {
    "cheap drafts": Devices(lambda _: 20.0, lambda _: 0.5),
    "dear drafts": Devices(lambda _: 20.0, lambda _: 10.0),
    "good drafts, t as long as V": Devices(lambda _: 20.0, lambda _: 4.0, 0.95),
    "useless drafts": Devices(lambda _: 20.0, lambda _: 2.0, 0.02),
    "bound by arithmetic": Devices(roofline, lambda tokens: roofline(tokens) / 8),
    "bound by arithmetic, dear drafts": Devices(roofline, lambda tokens: roofline(tokens) / 2),
    "costly steps": Devices(lambda tokens: tokens / 8, lambda _: 0.5, 0.7, dict.fromkeys(Way, 3.0)),
}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("rows", [1, 2, 9, 64, 200])
def test_it_finds_what_is_best(name: str, rows: int) -> None:
    engine = Engine(DEVICES[name])
    engine.run(rows, 300)
    engine.ms = engine.gained = 0.0
    engine.run(rows, 600)
    assert engine.gained / engine.ms >= 0.975 * engine.best(rows), (
        "probes take a hundredth, and little is not worth a change"
    )


@pytest.mark.parametrize("name", DEVICES)
def test_it_comes_to_rest(name: str) -> None:
    engine = Engine(DEVICES[name])
    engine.run(32, 1000)
    engine.changes = 0
    made = engine.run(32, 1000)
    assert made.most_common(1)[0][1] > 900
    assert engine.changes < 60


def test_nothing_is_drafted_ahead_where_that_does_not_go() -> None:
    made = Engine(DEVICES["good drafts, t as long as V"], ahead=False).run(8, 500)
    assert not [choice for choice in made if choice.way is Way.AHEAD]
    assert [choice for choice in Engine(DEVICES["good drafts, t as long as V"]).run(8, 500) if choice.way is Way.AHEAD]


def test_a_row_alone_is_no_two_batches() -> None:
    engine = Engine(Devices(lambda tokens: max(20, tokens / 20), lambda _: 6.0, 0.9), ahead=False)
    assert engine.run(200, 300).most_common(1)[0][0].way is Way.TWO
    made = engine.run(1, 1)
    assert made.keys() == {engine.now}
    assert engine.now.way is Way.ONE
    assert engine.mode.why.endswith("one row is left")
    assert not [choice for choice in engine.run(1, 300) if choice.way is Way.TWO]


def test_the_choice_follows_the_load() -> None:
    """Many rows are bound by arithmetic, where drafts that are half wrong cost more than they bring; few are not."""
    engine = Engine(Devices(roofline, lambda tokens: roofline(tokens) / 20, 0.5))
    many = engine.run(250, 600).most_common(1)[0][0]
    engine.run(4, 30)
    few = engine.run(4, 100).most_common(1)[0][0]
    assert few.drafts > many.drafts
    engine.run(250, 30)
    assert engine.run(250, 100).most_common(1)[0][0] == many


def test_plain_decoding_is_left_when_drafts_become_good() -> None:
    engine = Engine(Devices(lambda _: 20.0, lambda _: 2.0, 0.02), ahead=False)
    assert engine.run(32, 500).most_common(1)[0][0] == PLAIN
    engine.devices.accepted = 0.9
    engine.run(32, 2500)
    assert engine.now.drafts > 2


def test_drafts_are_left_when_they_become_bad() -> None:
    engine = Engine(Devices(lambda _: 20.0, lambda _: 2.0, 0.9), ahead=False)
    assert engine.run(32, 500).most_common(1)[0][0].drafts > 2
    engine.devices.accepted = 0.02
    engine.run(32, 100)
    assert engine.now.drafts < 2


def test_probes_take_a_hundredth_of_the_time() -> None:
    engine = Engine(Devices(lambda _: 20.0, lambda _: 10.0, 0.1), ahead=False)
    engine.run(32, 300)
    engine.ms = engine.gained = 0.0
    made = engine.run(32, 3000)
    assert len(made) > 1, "drafts may become better: now and then some are tried"
    assert engine.gained / engine.ms >= 0.985 * 32 / 20


def test_it_chooses_the_same_again() -> None:
    first, second = (Engine(DEVICES["bound by arithmetic"]).run(50, 400) for _ in range(2))
    assert first == second


def test_while_nothing_runs_nothing_is_tried() -> None:
    engine = Engine(DEVICES["cheap drafts"])
    assert len(engine.run(0, 50)) == 1
    assert engine.run(8, 3) == {Choice(Way.ONE, 5): 3}


def test_a_change_says_why() -> None:
    engine = Engine(Devices(lambda _: 20.0, lambda _: 2.0, 0.02), ahead=False)
    assert engine.mode.why == "one batch, 5 drafts: nothing is measured yet"
    engine.run(32, 1)
    assert engine.mode.why == "one batch, 5 drafts: to measure it"
    reasons = {engine.mode.why for _ in range(800) if engine.run(32, 1)}
    assert "one batch, 1 draft: a probe" in reasons
    engine.devices.accepted = 0.9
    reasons = {engine.mode.why for _ in range(2500) if engine.run(32, 1)}
    assert [why for why in reasons if "tokens/s by measured times, before " in why]


def two_batches_are_best() -> Devices:
    """For 64 rows, by 6 % and more: half of them are computed while the weights are read, with drafts; all are not."""
    return Devices(roofline, lambda tokens: roofline(tokens) / 5, 0.85, dict.fromkeys(Way, 1.0))


def test_one_disturbed_step_locks_no_way_out() -> None:
    """The first step that is seen of two batches took ten times as long."""
    engine = Engine(two_batches_are_best(), ahead=False)
    engine.disturbed[Way.TWO, True] = 200.0
    engine.run(64, 200)
    made = engine.run(64, 600)
    assert sum(calls for choice, calls in made.items() if choice.way is Way.TWO) > 500


def test_a_way_of_which_only_disturbed_steps_are_known_is_tried_again() -> None:
    engine = Engine(two_batches_are_best(), ahead=False)
    engine.devices.host[Way.TWO] = 200.0
    assert engine.run(64, 300).most_common(1)[0][0].way is Way.ONE
    engine.devices.host[Way.TWO] = 1.0
    engine.run(64, 12_000)
    assert engine.now.way is Way.TWO


@pytest.mark.parametrize(("steps", "tried"), [(3, True), (30, False)])
def test_a_way_of_which_few_steps_are_known_is_tried_as_if_they_were_like_others(steps: int, tried: bool) -> None:
    costs, acceptance = two_batches_are_best().learnt(256, 5)
    hosts = Hosts()
    for way, many, ms in ((Way.ONE, 50, 1.0), (Way.TWO, steps, 200.0)):
        for _ in range(many):
            hosts.add(way, True, ms)
            hosts.add(Way.ONE, False, 1.0)
    costs._hosts = hosts
    mode = Auto(5, costs, acceptance, Prompts(), ahead=False)
    load = Load(64, False, 256)
    for _ in range(18):
        mode.choose(load, PLAIN)
    made = [mode.choose(load, PLAIN) for _ in range(3000)]
    assert any(choice.way is Way.TWO and choice.drafts for choice in made) == tried


@pytest.mark.parametrize("host", [8.0, 12.0])
def test_plain_decoding_that_needs_less_of_the_host_is_found(host: float) -> None:
    devices = Devices(lambda _: 20.0, lambda _: 6.0, 0.45, dict.fromkeys(Way, host), dict.fromkeys(Way, 0.5))
    engine = Engine(devices, ahead=False)
    engine.run(8, 300)
    engine.ms = engine.gained = 0.0
    engine.run(8, 600)
    assert engine.gained / engine.ms >= 0.975 * 8 / 20.5


def test_while_rows_join_in_numbers_nothing_is_measured() -> None:
    mode = Auto(5, Costs(), Acceptance(), Prompts(), ahead=False)
    for rows in range(8, 192, 8):
        assert mode.choose(Load(rows, True, 256), PLAIN) == Choice(Way.TWO, 5)
    assert mode.why == "two batches, 5 drafts: rows join"
    assert [mode.choose(Load(248, True, 256), PLAIN) for _ in range(18)] == [
        *[Choice(Way.ONE, 5)] * 6,
        *[Choice(Way.TWO, 5)] * 6,
        *[PLAIN] * 6,
    ]
    begun = Auto(5, Costs(), Acceptance(), Prompts(), ahead=False)
    begun.choose(Load(248, False, 256), PLAIN)
    made = [begun.choose(Load(248, False, 256, reading=200), PLAIN) for _ in range(50)]
    assert set(made) == {Choice(Way.ONE, 5)}, "the first of the survey, so much longer"
    reading = Auto(5, Costs(), Acceptance(), Prompts(), ahead=False)
    made = [reading.choose(Load(8, False, 8, reading=4), PLAIN) for _ in range(50)]
    assert set(made) == {Choice(Way.TWO, 5)}


def test_where_rows_always_read_the_survey_ends_all_the_same() -> None:
    mode = Auto(5, Costs(), Acceptance(), Prompts(), ahead=False)
    made = [mode.choose(Load(20, True, 256, reading=10), PLAIN) for _ in range(150)]
    assert made[99] == Choice(Way.TWO, 5)
    assert set(made[100:]) == {Choice(Way.ONE, 5), Choice(Way.TWO, 5), PLAIN}
    assert made[-1] == PLAIN, "the last of the survey"


def test_after_a_probe_the_reason_is_that() -> None:
    engine = Engine(Devices(lambda _: 20.0, lambda _: 2.0, 0.02), ahead=False)
    engine.run(32, 300)
    said = []
    for _ in range(800):
        engine.run(32, 1)
        said.append((engine.now, engine.mode.why))
    assert (PLAIN, "one batch, no drafts: after a probe") in said
    assert all(why.startswith(in_words(now)) for now, why in said)


def test_choosing_takes_microseconds() -> None:
    engine = Engine(DEVICES["bound by arithmetic"])
    engine.run(100, 200)
    load = Load(100, False, 256)
    times = []
    for _ in range(5):
        start = time.thread_time()
        for _ in range(400):
            engine.mode.choose(load, engine.now)
        times.append((time.thread_time() - start) / 400)
    assert min(times) < 50e-6
