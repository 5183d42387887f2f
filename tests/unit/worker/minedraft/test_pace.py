"""What a running engine's stage clock says: V, t, what nothing hides, acceptance and prompts."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from worker.minedraft import pace
from worker.minedraft.pace import Pace
from worker.minedraft.stages import DRAFTER, Stage, StageClock, ring_path, verifier_name
from worker.strategies.acceptance import Acceptance
from worker.strategies.modes.prompts import Reading
from worker.strategies.seam import Way

MS = 10**6


class Clocks:
    """The rings of an engine's first verifier and drafter, and time as it passes for both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.ns = 10**12
        monkeypatch.setattr("worker.minedraft.stages.time.monotonic_ns", lambda: self.ns)
        monkeypatch.setattr(pace.time, "monotonic", lambda: self.ns / 1e9)
        self.verifier = StageClock(ring_path(folder, verifier_name(0)))
        self.drafter = StageClock(ring_path(folder, DRAFTER))

    def verify(
        self,
        call: int,
        ms: int,
        *,
        at: int | None = None,
        requests: int = 4,
        drafts: int = 3,
        accepted: int = 0,
        prompt: int = 0,
        way: Way = Way.TWO,
        asked: int | None = None,
    ) -> None:
        """A pass that began then (ms), after a wait for drafts that is of no interest."""
        stages = ((Stage.RECV, -9, 0), (Stage.PREPARE, 0, 1), (Stage.FORWARD, 1, ms - 1), (Stage.SAMPLE, ms - 1, ms))
        tokens = requests * (1 + drafts) + prompt
        start = self.ns if at is None else 10**12 + at * MS
        self.verifier.begin(call)
        asked = drafts if asked is None else asked
        self.verifier.count(requests=requests + (prompt > 0), tokens=tokens, prefill=prompt > 0, asked=asked, way=way)
        _took(self.verifier, start, stages)
        self.verifier.drafts([drafts] * requests, [accepted] * requests)
        self.verifier.commit()

    def draft(self, call: int, ms: int, *, requests: int = 4, drafts: int = 3, prompt: int = 0) -> None:
        stages = ((Stage.PREPARE, -30, -20), (Stage.RECV, -20, 0), (Stage.DRAFT, 0, ms), (Stage.SEND, ms, ms + 9))
        tokens = requests * (1 + drafts) + prompt
        self.drafter.begin(call)
        self.drafter.count(requests=requests, tokens=tokens, prefill=prompt > 0, asked=drafts)
        _took(self.drafter, self.ns, stages)
        self.drafter.commit()

    def later(self) -> None:
        self.ns += 300 * MS


def _took(clock: StageClock, start: int, stages: Sequence[tuple[Stage, int, int]]) -> None:
    for stage, first, last in stages:
        clock.took(stage, start + first * MS, start + last * MS)


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(tmp_path, monkeypatch)


def followed(clocks: Clocks) -> Pace:
    made = Pace(clocks.folder)
    made.refresh()
    return made


def test_v_is_from_the_inputs_to_the_sample_and_t_the_drafting_alone(clocks: Clocks) -> None:
    clocks.verify(1, 20)
    clocks.draft(1, 6)
    follows = followed(clocks)
    assert follows.costs.verify_ms(4, 16) == pytest.approx(20)
    assert follows.costs.draft_ms(4, 16, 3) == pytest.approx(6)


def test_prompts_are_tokens_as_others_and_told_apart(clocks: Clocks) -> None:
    for call in range(1, 5):
        clocks.verify(call, 90, prompt=100)
        clocks.draft(call, 30, prompt=100)
    follows = followed(clocks)
    assert follows.costs.verify_ms(5, 116) == pytest.approx(90)
    assert follows.costs.draft_ms(4, 116, 3) == pytest.approx(30)
    # Of 5 rows in a pass each gets a token, the one that read its prompt, too.
    assert tuple(follows.prompts.reading) == pytest.approx((100 / 5, 100))


def test_drafts_are_counted_by_position(clocks: Clocks) -> None:
    for call in range(1, 400):
        clocks.verify(call, 20, accepted=2)
    follows = followed(clocks)
    assert [round(follows.acceptance.at(position), 1) for position in range(3)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("way", "drafts", "t", "step", "hidden"),
    [
        (Way.TWO, 3, 6, 23, 20),
        (Way.TWO, 3, 30, 33, 30),
        (Way.ONE, 3, 6, 29, 26),
        (Way.ONE, 0, 6, 23, 20),
        (Way.AHEAD, 3, 30, 33, 30),
    ],
)
def test_what_of_a_step_nothing_hides(clocks: Clocks, way: Way, drafts: int, t: int, step: int, hidden: int) -> None:
    for number in range(10):
        call = number if way is Way.TWO else 2 * number
        clocks.verify(call, 20, at=number * step, drafts=drafts, way=way)
        clocks.draft(call, t, drafts=drafts)
    assert followed(clocks).costs.host_ms(way, drafts > 0) == pytest.approx(step - hidden)


def test_in_two_batches_a_pass_hides_the_drafting_for_the_other_one(clocks: Clocks) -> None:
    at = 0
    for call in range(10):
        clocks.verify(call, 20, at=at)
        clocks.draft(call, 30 if call % 2 else 6)
        at += 3 + (20 if call % 2 else 30)  # of the call before
    assert followed(clocks).costs.host_ms(Way.TWO, True) == pytest.approx(3)


def test_a_step_that_nothing_was_to_be_done_in_is_none(clocks: Clocks) -> None:
    for call, at in ((1, 0), (2, 23), (3, 5000), (4, 5023)):
        clocks.verify(call, 20, at=at)
        clocks.draft(call, 6)
    assert followed(clocks).costs.host_ms(Way.TWO, True) == pytest.approx(3)


def test_a_change_and_a_batch_alone_are_no_steps(clocks: Clocks) -> None:
    clocks.verify(1, 20, at=0)
    clocks.verify(3, 20, at=80)
    clocks.verify(4, 20, at=190, way=Way.ONE)
    clocks.verify(6, 20, at=240, way=Way.ONE, drafts=1)
    for call in (0, 1, 3, 4, 6):
        clocks.draft(call, 6)
    follows = followed(clocks)
    assert [follows.costs.host_ms(way, True) for way in Way] == [0, 0, 0]


def test_a_step_in_which_many_rows_read_prompts_says_nothing(clocks: Clocks) -> None:
    for call in range(6):
        clocks.verify(call, 20, at=50 * call, requests=2, prompt=100)
        clocks.draft(call, 6, prompt=100)
    assert followed(clocks).costs.host_ms(Way.TWO, True) == 0
    for call in range(6, 12):
        clocks.verify(call, 20, at=300 + 23 * (call - 6), requests=4, prompt=100)
        clocks.draft(call, 6, prompt=100)
    assert followed(clocks).costs.host_ms(Way.TWO, True) == pytest.approx(3), "one of five is how it always is"


def test_drafts_that_nobody_was_asked_for_were_found(clocks: Clocks) -> None:
    clocks.verify(0, 20, way=Way.ONE, drafts=0)
    for call in range(2, 400, 2):
        clocks.verify(call, 20, way=Way.ONE, drafts=3, accepted=3, asked=0)
    follows = followed(clocks)
    assert follows.acceptance.at(0) == Acceptance().at(0), "they say nothing of the draft model's"
    assert follows.acceptance.asked(0) == pytest.approx((4, 4), rel=0.05)


def test_to_learn_from_fifty_calls_takes_less_than_a_millisecond(clocks: Clocks) -> None:
    follows, times = Pace(clocks.folder), []
    for turn in range(9):
        for call in range(50 * turn, 50 * turn + 50):
            clocks.verify(call, 20, at=23 * call, accepted=2)
            clocks.draft(call, 6)
        records = [reader.read() for reader in follows._readers]
        start = time.thread_time()
        follows.learn(*records)
        times.append(time.thread_time() - start)
    assert min(times) < 1.5e-3


def test_a_step_goes_on_where_the_clock_was_read(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    for call in range(5):
        clocks.draft(call, 6)
        clocks.verify(call, 20, at=23 * call)
        clocks.later()
        follows.refresh()
    assert follows.costs.host_ms(Way.TWO, True) == pytest.approx(3)


def test_a_pass_that_did_not_come_to_its_end_does_not_count(clocks: Clocks) -> None:
    for clock in (clocks.drafter, clocks.verifier):
        clock.begin(1)
        clock.count(requests=4, tokens=16, prefill=0)
        clock.commit()  # near the end of the context vLLM drafts nothing
    follows = followed(clocks)
    assert follows.costs.verify_ms(4, 16) is None
    assert follows.costs.draft_ms(4, 16, 3) is None


def test_the_clock_is_read_now_and_then(clocks: Clocks) -> None:
    follows = followed(clocks)
    clocks.verify(1, 20)
    follows.refresh()
    assert follows.costs.verify_ms(4, 16) is None, "no time has passed for who reads"
    clocks.later()
    follows.refresh()
    assert follows.costs.verify_ms(4, 16) == pytest.approx(20)


def test_a_drafter_that_was_started_again_is_followed(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    clocks.draft(1, 20)
    follows.refresh()
    clocks.drafter = StageClock(ring_path(clocks.folder, DRAFTER))
    clocks.draft(2, 50, requests=32)
    clocks.later()
    follows.refresh()
    assert follows.costs.draft_ms(4, 16, 3) == pytest.approx(20, rel=0.05)
    assert follows.costs.draft_ms(32, 128, 3) == pytest.approx(50, rel=0.05)


def test_outside_an_engine_and_before_it_has_begun_nothing_is_known(tmp_path: Path) -> None:
    for follows in (Pace(None), Pace(tmp_path)):
        follows.refresh()
        assert follows.costs.verify_ms(4, 16) is None
        assert follows.prompts.reading == Reading()
