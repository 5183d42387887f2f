"""A run of imagined devices on paper: both lanes' passes one by one, in a second for an hour, under a real mode.

The verifiers and the drafter each do one thing at a time, in the order of calls, and the engine has two calls under
way:

    V of call n     after V of call n - 1, the drafts of its rows' last call, and what the host takes
    t of call n     after t of call n - 1 and V of call n; ahead, once V of call n has begun
    call n          is scheduled when the result of call n - 2 is in; in one batch, that of call n - 1

The mode is asked before each call, and knows what a worker's would: a `Pace` that reads stage records every 0.25 s.
What is drafted in a call is verified in its rows' next one. Whether a draft is right follows from its row and position
alone, so that every mode has the same luck.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.lab.profile import Profile
from worker.minedraft.pace import Pace
from worker.minedraft.stages import MAX_DRAFTS, RECORD, Records, Stage
from worker.strategies.modes.fixed import Fixed
from worker.strategies.seam import Choice, Load, Mode, Way

#: How often a worker's mode learns what was measured.
_READ_MS = 250.0
#: Calls that an engine's ranks can be told of before the last one took them (vLLM's message queue: ten messages, two a
#: call).
_QUEUED = 5
_NS_PER_MS = 1e6

Rows = NDArray[np.int64]
#: What of a step nothing hides (ms), by what is done and how often rows took turns so before, with drafts or without.
HostMs = Callable[[Choice, int], float]


@dataclass(frozen=True, slots=True)
class Work:
    """The rows.

    Attributes:
        rows: how many.
        prompt_tokens: of each.
        output_tokens: of an answer, in the mean; they are half of it to one and a half.
        seed: of what else is random.
    """

    rows: int
    prompt_tokens: int
    output_tokens: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run.

    Attributes:
        tokens: of all answers.
        ms: from the first call to the last result.
        calls: by what was chosen.
    """

    tokens: int
    ms: float
    calls: Mapping[Choice, int] = field(default_factory=dict)

    @property
    def tokens_per_s(self) -> float:
        """Throughput."""
        return 1e3 * self.tokens / self.ms


class MakesMode(Protocol):
    """Makes a mode that learns from a pace."""

    def __call__(self, pace: Pace) -> Mode:
        """The mode."""
        ...


def simulate(
    profile: Profile,
    mode: Choice | MakesMode,
    work: Work,
    *,
    places: int,
    drafts: int,
    host_ms: float | HostMs = 0.0,
    prompt_tokens_a_call: int = 8192,
) -> Outcome:
    """Answer rows.

    Args:
        profile: the devices.
        mode: makes the mode; or what is always chosen.
        work: the rows.
        places: rows at once.
        drafts: the most tokens that are drafted in a call.
        host_ms: of a step that nothing hides, the same for all or by what is done.
        prompt_tokens_a_call: that are read in a call, one prompt at least (8192: vLLM's default on GPUs).
    """
    of_step = host_ms if callable(host_ms) else lambda choice, before: host_ms
    run = _Run(profile, mode, work, places, drafts, of_step, prompt_tokens_a_call)
    while run.left:
        run.call()
    return Outcome(run.tokens, run.verifier_ms, run.choices)


class _Ring:
    """A rank's records, which are read when they are published."""

    def __init__(self) -> None:
        self._records = np.zeros(256, RECORD)
        self._at_ms: list[float] = []
        self._read = 0

    def add(self, at_ms: float, **fields: object) -> Records:
        """A record, to be filled, that is published then."""
        count = len(self._at_ms)
        if count == self._records.size:
            self._records = np.concatenate([self._records, np.zeros(count, RECORD)])
        self._at_ms.append(at_ms)
        record: Records = self._records[count]
        for name, value in fields.items():
            record[name] = value
        return record

    def read(self, now_ms: float) -> Records:
        """Those that were published since the last time."""
        first, self._read = self._read, bisect_right(self._at_ms, now_ms, self._read)
        records: Records = self._records[first : self._read]
        return records


@dataclass(slots=True)
class _Call:
    """Under way: its rows, and when its result is in."""

    rows: Rows
    end_ms: float


class _Run:
    """All that there is while rows are answered; rows have numbers, and all arrays are by row."""

    def __init__(
        self,
        profile: Profile,
        mode: Choice | MakesMode,
        work: Work,
        places: int,
        drafts: int,
        host_ms: HostMs,
        budget: int,
    ) -> None:
        self.profile, self.work, self.places, self.most, self.host_ms = profile, work, places, drafts, host_ms
        self.pace: Pace | None = None
        self.mode: Mode
        if isinstance(mode, Choice):
            self.mode = Fixed(mode)
        else:
            self.pace = Pace(None)
            self.mode = mode(self.pace)
        self.prompts_a_call = max(1, budget // max(1, work.prompt_tokens))
        random = np.random.default_rng(work.seed)
        least = work.output_tokens // 2
        self.outputs = random.integers(least, 3 * least + 1, work.rows)
        self.tokens, self.left = int(self.outputs.sum()), work.rows
        self.luck = random.random((work.rows, int(self.outputs.max()) + drafts + 2))
        self.chances = np.array([profile.accepted_at(position) for position in range(drafts + 1)])
        self.done = np.zeros(work.rows, np.int64)  # tokens of each row's answer
        self.drafts = np.zeros(work.rows, np.int64)  # that each row is verified with next
        self.drafts_ms = np.zeros(work.rows)  # when they are there
        self.ready = np.zeros(0, np.int64)  # rows whose result is in
        self.running = self.joined = 0
        self.under_way: deque[_Call] = deque()
        self.now_ms = self.verifier_ms = self.drafter_ms = self.read_ms = 0.0
        self.queue: deque[float] = deque([0.0] * _QUEUED, _QUEUED)  # when the drafter has done its last calls
        self.number = 0
        self.number_of = np.full(work.rows, -1)  # each row's last call
        self.choice = Choice(Way.ONE, 0)
        self.choices: Counter[Choice] = Counter()
        self.steps: Counter[tuple[Way, bool]] = Counter()  # by way, and whether rows were drafted for
        self.verified, self.drafted = _Ring(), _Ring()

    def call(self) -> None:
        """Make a call, or take in a result."""
        if len(self.under_way) == 2:
            self._take_in()
        self._learn()
        self.choice = self.mode.choose(self._load(), self.choice)
        if self.under_way and (self.choice.way is not Way.TWO or not (self.ready.size or self._may_join())):
            self._take_in()
            if self.choice.way is not Way.TWO and self.under_way:
                self._take_in()
        rows, joining = self._batch()
        if rows.size + joining.size:
            self._step(rows, joining)

    def _load(self) -> Load:
        return Load(self.running, self.joined < self.work.rows, self.places)

    def _may_join(self) -> bool:
        return self.joined < self.work.rows and self.running < self.places

    def _learn(self) -> None:
        if self.pace is not None and self.now_ms >= self.read_ms:
            self.read_ms = self.now_ms + _READ_MS
            self.pace.learn(self.verified.read(self.now_ms), self.drafted.read(self.now_ms))

    def _take_in(self) -> None:
        call = self.under_way.popleft()
        self.now_ms = max(self.now_ms, call.end_ms)
        ended = self.done[call.rows] >= self.outputs[call.rows]
        self.ready = np.concatenate([self.ready, call.rows[~ended]])
        gone = int(ended.sum())
        self.running -= gone
        self.left -= gone

    def _batch(self) -> tuple[Rows, Rows]:
        """The rows whose turn it is, and those that join; the batches are as alike as can be."""
        room = min(self.places - self.running, self.work.rows - self.joined)
        size = self.running + room
        if self.choice.way is Way.TWO:
            size = (size + 1) // 2
        rows, self.ready = self.ready[:size], self.ready[size:]
        count = max(0, min(room, size - rows.size, self.prompts_a_call))
        joining = np.arange(self.joined, self.joined + count)
        self.joined += count
        self.running += count
        return rows, joining

    def _step(self, rows: Rows, joining: Rows) -> None:
        way, asked = self.choice
        both = np.concatenate([rows, joining])
        scheduled = self.drafts[rows]
        reading = joining.size * self.work.prompt_tokens
        context = int(self.done[rows].sum()) + rows.size * self.work.prompt_tokens
        tokens = int(rows.size + scheduled.sum()) + reading
        right = self._right(both)
        kept = np.minimum(right[: rows.size], scheduled)

        begin = max(self.now_ms, self.verifier_ms, self.queue[0], float(self.drafts_ms[rows].max(initial=0.0)))
        begin += self.host_ms(self.choice, self.steps[way, asked > 0])
        self.steps[way, asked > 0] += 1
        end = begin + self.profile.target.ms(tokens, context)
        drafting = max(self.drafter_ms, begin if way is Way.AHEAD else end)
        drafted = drafting + self.profile.passes_ms(both.size, tokens, asked, context=context // both.size)
        self.verifier_ms, self.drafter_ms = end, drafted
        self.queue.append(drafted)

        self.number += 1 + bool((self.number_of[rows] == self.number).any())  # as `CallNumbers` does
        self.number_of[both] = self.number
        self.done[rows] += kept + 1
        self.done[joining] = 1
        self.drafts[both] = asked
        if way is Way.AHEAD:
            self.drafts[both] = 0
            self.drafts[rows[right[: rows.size] > scheduled]] = asked - 1
        self.drafts_ms[both] = max(drafted, end) if asked else 0.0
        self.under_way.append(_Call(both, end))
        self.choices[self.choice] += 1
        if self.pace is not None:
            self._record(both, joining.size, tokens, scheduled, kept, (begin, end, drafting, drafted))

    def _right(self, rows: Rows) -> Rows:
        """[rows] how many drafts in a row would be right."""
        positions = self.done[rows, None] + np.arange(self.most + 1)
        right: Rows = np.cumprod(self.luck[rows[:, None], positions] < self.chances, axis=1).sum(axis=1)
        return right

    def _record(
        self, rows: Rows, reading: int, tokens: int, scheduled: Rows, kept: Rows, times: tuple[float, ...]
    ) -> None:
        begin, end, drafting, drafted = (ms * _NS_PER_MS + 1 for ms in times)  # a time of 0 is none
        what = {
            "call": self.number,
            "requests": rows.size,
            "tokens": tokens,
            "prefill": reading,
            "asked": self.choice.drafts,
            "way": self.choice.way,
        }
        places = np.arange(1, MAX_DRAFTS + 1)
        record = self.verified.add(
            times[1],
            **what,
            drafted=scheduled.sum(),
            drafted_at=(scheduled[:, None] >= places).sum(axis=0),
            accepted=(kept[:, None] >= places).sum(axis=0),
        )
        record["begin"][Stage.PREPARE], record["end"][Stage.SAMPLE] = begin, end
        record = self.drafted.add(times[3], **what)
        record["begin"][Stage.DRAFT], record["end"][Stage.DRAFT] = drafting, drafted
