"""How rows get to the engine, and that no record of it is lost without a word."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.record.models import Answer, Row
from worker.engine.protocol import EngineDead
from worker.engine.vllm import StageFollower
from worker.engine.vllm_args import VllmOptions
from worker.lab import side_engine
from worker.lab.side_common import Told
from worker.lab.side_engine import answer_all
from worker.minedraft.stages import Stage, StageClock, ring_path, verifier_name

ROWS = [Row(index, index + 1, str(index), "/v1/completions", {"prompt": "x"}) for index in range(20)]
PLACES = 2


class Slow:
    """An engine of two places, the first come first; a row of an odd number takes longer."""

    def __init__(self, *, dies_at: int | None = None) -> None:
        self.given: list[int] = []
        self.most = self._inside = 0
        self._places = asyncio.Semaphore(PLACES)
        self._dies_at = dies_at

    @property
    def capacity(self) -> int:
        return PLACES

    async def start(self) -> None: ...

    async def answer(self, row: Row, job: str = "") -> Answer:
        self.given.append(row.index)
        self._inside += 1
        self.most = max(self.most, self._inside)
        async with self._places:
            await asyncio.sleep(0.002 * (1 + row.index % 2))
        if row.index == self._dies_at:
            raise EngineDead("it died")
        self._inside -= 1
        return Answer({"choices": [{"text": row.custom_id}]}, 1, row.index)

    async def wait_dead(self) -> str:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_an_engine_has_so_many_rows_at_hand_and_gets_them_in_order() -> None:
    engine = Slow()
    requests, answers = await answer_all(engine, ROWS, 6)
    assert engine.most == 6
    assert engine.given == list(range(20))
    assert [answer.completion_tokens for answer in answers] == list(range(20))
    assert [request.tokens for request in requests] == list(range(20))
    begun = [request.given_s for request in requests]
    assert begun == sorted(begun)
    assert begun[6] >= min(request.answered_s for request in requests)  # when the engine got it, not before
    assert all(request.given_s < request.answered_s for request in requests)


async def test_few_rows_are_given_at_once() -> None:
    engine = Slow()
    assert len((await answer_all(engine, ROWS[:3], 6))[0]) == engine.most == 3


async def test_a_dead_engine_ends_it() -> None:
    with pytest.raises(EngineDead, match="it died"):
        await answer_all(Slow(dies_at=7), ROWS, 6)


@contextmanager
def told(folder: Path) -> Iterator[Told]:
    rows = folder / "rows.jsonl"
    rows.write_text('{"prompt": "x", "max_tokens": 9}\n' * 3)
    yield Told("engine", VllmOptions(model="m", served_model_name="target", max_num_seqs=2), rows, "", virtual=False)


@pytest.mark.parametrize(("calls_a_row", "lost"), [(2, None), (40, 3 * 40 - 15)])
async def test_records_that_nobody_read_in_time_are_counted(
    calls_a_row: int, lost: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring of 16 is read before and after a turn of three rows, which are a job."""
    jobs: list[str] = []

    class Recording(Slow):
        def __init__(self, _: VllmOptions, stages: StageFollower) -> None:
            super().__init__()
            self._clock, self._call = StageClock(ring_path(tmp_path, verifier_name(0)), capacity=16), 0
            stages.follow(tmp_path)

        async def answer(self, row: Row, job: str = "") -> Answer:
            jobs.append(job)
            for _ in range(calls_a_row):
                self._call += 1
                self._clock.begin(self._call)
                self._clock.start(Stage.PREPARE)
                self._clock.stop(Stage.SAMPLE)
                self._clock.commit()
            return await super().answer(row, job)

    monkeypatch.setattr(side_engine, "VllmEngine", Recording)
    with told(tmp_path) as what:
        async with side_engine.opened(what) as turn:
            for _ in range(2):  # what was lost before is not counted again
                answered = await turn()
                assert answered.turn.lost_records == lost
                assert len(answered.records[verifier_name(0)]) == 3 * calls_a_row - (lost or 0)
    of_turns = [set(jobs[:-6]), set(jobs[-6:-3]), set(jobs[-3:])]  # two rows to warm up, then two turns
    assert [len(names) for names in of_turns] == [1, 1, 1]
    assert len(set.union(*of_turns)) == 3
