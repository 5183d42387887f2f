"""The parts of the client that need no Redis: what it takes, what it gives, and how it is loaded."""

import asyncio
import gc
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import producer
from producer import Client, Job, Refused, SyncClient, SyncJob
from producer.client import job_options
from producer.intake.feed import Feed, pump, read_apart
from producer.intake.given import source_of
from producer.intake.in_memory import RowsAtHand, line_of
from producer.intake.lines import MAX_LINE_BYTES, Line, TooLong
from producer.intake.rows import parse_line
from producer.record.models import Answer, Outcome, Row, RowFault
from producer.result import result_of

ROW = Row(0, 1, "r0", "/v1/chat/completions", {})


def test_the_package_loads_its_names_when_they_are_asked_for() -> None:
    code = "import sys, producer; print('redis' in sys.modules); producer.Client; print('redis' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]
    assert all(getattr(producer, name).__name__ == name for name in producer.__all__)
    assert dir(producer) == sorted(producer.__all__)
    with pytest.raises(AttributeError, match="module 'producer' has no attribute 'Clint'"):
        producer.Clint  # noqa: B018


@pytest.mark.parametrize(("face", "behind"), [(SyncClient, Client), (SyncJob, Job)])
def test_the_sync_face_has_every_method_with_its_parameters_and_documentation(face: Any, behind: Any) -> None:
    public = {name for name in vars(behind) if not name.startswith("_")} - {"link", "result_pages"}
    for name in public:
        if inspect.isfunction(method := getattr(behind, name)):
            own = getattr(face, name)
            assert own.__doc__ == method.__doc__, name
            assert inspect.signature(own).parameters == inspect.signature(method).parameters, name
            assert not inspect.iscoroutinefunction(own), name
        else:
            assert name in vars(face), name


class TestResult:
    def line(self, body: dict[str, Any]) -> bytes:
        return Outcome.answered(ROW, Answer(body, 1, 1)).line.encode()

    def test_an_answer(self) -> None:
        choices = [{"message": {"content": text}, "finish_reason": "stop"} for text in ("a", "b")]
        result = result_of(self.line({"choices": choices, "usage": {"total_tokens": 3}}))
        assert (result.ok, result.custom_id, result.text, result.texts) == (True, "r0", "a", ("a", "b"))
        assert result.usage == {"total_tokens": 3}
        assert result.response is not None
        assert result.response["choices"] == choices

    def test_a_completion_and_a_tool_call(self) -> None:
        assert result_of(self.line({"choices": [{"text": "t", "finish_reason": "stop"}]})).texts == ("t",)
        call = {"message": {"content": None, "tool_calls": [{"id": "c"}]}, "finish_reason": "tool_calls"}
        assert result_of(self.line({"choices": [call]})).texts == ("",)
        assert result_of(self.line({"choices": []})).texts == ()

    def test_an_error(self) -> None:
        line = Outcome.failed_row(3, 4, None, RowFault("bad", "why")).line.encode()
        result = result_of(line)
        assert not result.ok
        assert result.error is not None
        assert (result.custom_id, result.error.code, result.error.message, result.error.line) == (None, "bad", "why", 4)
        assert (result.text, result.texts, result.response, result.usage) == ("", (), None, {})

    @given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode))
    def test_what_somebody_wrote_to_redis_raises_nothing(self, line: bytes) -> None:
        assert not result_of(line).ok


class TestWhatIsGiven:
    def test_rows_become_the_lines_that_spell_them(self) -> None:
        line = line_of({"prompt": "ü\u2028\ud800"}, 7)
        assert isinstance(line, Line)
        assert (line.number, json.loads(line.data)) == (7, {"prompt": "ü\u2028\ud800"})
        assert b"\n" not in line.data
        long = line_of({"prompt": "x" * MAX_LINE_BYTES}, 1)
        assert isinstance(long, TooLong)
        assert long.size == MAX_LINE_BYTES + len('{"prompt": ""}')

    @given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))))
    def test_a_row_is_the_row_of_its_line(self, body: dict[str, str]) -> None:
        row = {"messages": [body]}
        line = line_of(row, 1)
        assert isinstance(line, Line)
        parsed = parse_line(line, 0)
        assert isinstance(parsed, Row)
        assert parsed.body == row

    def test_sequences_can_be_read_again_and_iterators_cannot(self) -> None:
        rows = [{"prompt": "a"}, {"prompt": "b"}]
        at_hand = source_of(rows)
        assert at_hand.reopens
        assert list(at_hand.lines()) == list(at_hand.lines()) == [line_of(row, at + 1) for at, row in enumerate(rows)]
        passing = source_of(iter(rows))
        assert not passing.reopens
        assert list(passing.lines()) == list(at_hand.lines())
        assert isinstance(passing, RowsAtHand)

    def test_a_source_is_taken_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n')
        source = source_of(tmp_path / "a.jsonl")
        assert source.name == "a.jsonl"
        assert source_of(source) is source

    def test_options_are_checked(self) -> None:
        assert job_options(3, 0.5, timedelta(hours=1)).ttl_s == 3600
        assert job_options(0, None, None).ttl_s is None
        with pytest.raises(Refused, match=r"ttl: 0\.5 s would"):
            job_options(0, None, 0.5)
        for value in (float("nan"), float("inf"), float("-inf")):
            with pytest.raises(Refused, match=rf"ttl: {value} is no number of seconds; None keeps the job"):
                job_options(0, None, value)

    async def test_what_becomes_of_a_name_that_is_there_twice_is_one_of_two_things(self) -> None:
        with pytest.raises(Refused, match=r"^on_duplicate: 'error_row' is neither 'refuse' nor 'error-row'$"):
            await Client().submit([ROW.body], on_duplicate="error_row")  # type: ignore[arg-type]


async def numbers(feed: Feed) -> list[int]:
    return [line.number for line in feed.lines()]


class TestFeed:
    async def test_rows_pass_in_order_and_in_bounded_memory(self) -> None:
        most = 0

        async def rows() -> AsyncIterator[dict[str, str]]:
            nonlocal most
            for number in range(5000):
                most = max(most, number - seen)
                yield {"prompt": "x"}

        seen = 0

        async def slowly(feed: Feed) -> int:
            nonlocal seen
            await asyncio.sleep(0.3)  # in which nobody reads
            for line in feed.lines():
                seen = line.number
            return seen

        assert await pump(rows(), Feed("rows"), slowly) == 5000
        assert most < 2000

    async def test_a_reader_that_leaves_ends_the_filling(self) -> None:
        async def refuses(feed: Feed) -> None:
            next(feed.lines())
            raise Refused("enough")

        def rows() -> Iterator[dict[str, str]]:
            while True:
                yield {"prompt": "x"}

        async def same() -> AsyncIterator[dict[str, str]]:
            for row in rows():
                yield row

        with pytest.raises(Refused, match="enough"):
            await asyncio.wait_for(pump(same(), Feed("rows"), refuses), 10)
        feed = Feed("rows")
        filling = threading.Thread(target=feed.fill, args=(rows(),), daemon=True)
        filling.start()
        with pytest.raises(Refused, match="enough"):
            await read_apart(feed, refuses)
        filling.join(10)
        assert not filling.is_alive()

    async def test_a_reader_that_leaves_is_heard_while_the_rows_stall(self) -> None:
        closed = False

        async def rows() -> AsyncIterator[dict[str, str]]:
            nonlocal closed
            for _ in range(256):  # a portion
                yield {"prompt": "x"}
            try:
                stalling.set()
                await asyncio.Event().wait()
            finally:
                closed = True

        async def refuses(feed: Feed) -> None:
            next(feed.lines())
            await asyncio.to_thread(stalling.wait)
            raise Refused("enough")

        stalling = threading.Event()
        with pytest.raises(Refused, match="enough"):
            await asyncio.wait_for(pump(rows(), Feed("rows"), refuses), 10)
        assert closed

    @pytest.mark.parametrize("waiting", [True, False])
    async def test_a_reader_hears_that_rows_broke_off(self, waiting: bool) -> None:
        feed = Feed("rows")
        if waiting:
            threading.Timer(0.1, feed.break_off).start()
        else:
            for _ in range(4):
                feed._hand([])
            feed.break_off()
        with pytest.raises(Refused, match="broke off"):
            await read_apart(feed, numbers)

    async def test_a_reader_hears_that_the_rows_failed(self) -> None:
        def broken() -> Iterator[dict[str, str]]:
            yield {"prompt": "x"}
            raise ZeroDivisionError("mine")

        feed = Feed("rows")
        with pytest.raises(ZeroDivisionError):
            feed.fill(broken())
        with pytest.raises(Refused, match="broke off"):
            await asyncio.wait_for(read_apart(feed, numbers), 10)

    async def test_several_feeds_at_once_do_not_wait_for_each_other(self) -> None:
        go = asyncio.Event()

        async def rows() -> AsyncIterator[dict[str, str]]:
            await go.wait()
            yield {"prompt": "x"}

        running = [asyncio.create_task(pump(rows(), Feed("rows"), numbers)) for _ in range(40)]
        await asyncio.sleep(0.05)
        go.set()
        assert await asyncio.wait_for(asyncio.gather(*running), 20) == [[1]] * 40

    async def test_a_reading_that_is_cancelled_says_nothing_afterwards(self) -> None:
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        feed = Feed("rows")
        reading = asyncio.create_task(read_apart(feed, numbers))
        await asyncio.sleep(0.05)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        gc.collect()
        await asyncio.sleep(0)
        assert said == []
