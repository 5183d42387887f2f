"""Submissions that are cut short at every point, and what the next one makes of them: no row twice, none left out."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from given_lines import GivenLines
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from producer.intake.submission import Submitted, submit_lines
from producer.record import jobs, scripts, takeover
from producer.record.control import cancel
from producer.record.keys import key
from producer.record.models import JobState
from producer.record.submission import Submission, SubmissionLost

#: Good rows, refused ones, and requests that are there twice.
LINES = [
    b"{broken" if number % 13 == 7 else json.dumps({"prompt": f"p{number % 29}", "seed": number % 2}).encode()
    for number in range(90)
]
DATA = b"\n".join(LINES)
SILENT_MS = 11_000

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Submission, "BUFFERED_BYTES", 1500)


async def submit(redis: Redis, data: bytes = DATA, *, said: list[str] | None = None, **options: Any) -> Submitted:
    source = GivenLines(data, reopens=options.pop("reopens", True))
    say = (said if said is not None else []).append
    return await submit_lines(redis, source, model="target", name="test", say=say, **options)


async def content(redis: Redis, job_id: str) -> tuple[Any, ...]:
    """All that there is of a job: rows by shard, refused ones, counters, identity."""
    stored = await redis.hgetall(key("job", job_id))
    shards = [await redis.hgetall(key("rows", job_id, shard)) for shard in range(int(stored["shards"]))]
    refused = await redis.hgetall(key("results", job_id))
    errors = {index: json.loads(line)["error"] for index, line in refused.items()}
    names = ("state", "rows", "invalid", "done", "failed", "copies", "calls", "shards", "identity", "digest")
    waiting = await redis.zrange(key("open", job_id), 0, -1)
    ended = await redis.lrange(key("finished", job_id), 0, -1)
    return shards, errors, {name: stored[name] for name in names}, waiting, ended


async def silence(redis: Redis) -> None:
    """Time passes in which no producer is heard of."""
    for job, heard in await redis.zrange(key("staging"), 0, -1, withscores=True):
        await redis.zadd(key("staging"), {job: heard - SILENT_MS})


class Killed(BaseException):
    """As kill -9: nothing is done any more."""


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """`killing(trip, arrived)`: the producer dies in its `trip`-th round trip, of whose calls so many arrive."""
    run_many = scripts.run_many
    state = {"trip": 0, "at": 0, "arrived": 0}

    async def dying(redis: Redis, calls: Any, **options: Any) -> list[Any]:
        if not state["at"] or "left" in [name for name, _ in calls]:
            return await run_many(redis, calls, **options)
        state["trip"] += 1
        if state["trip"] > state["at"]:
            raise Killed  # no clean-up either
        if state["trip"] == state["at"]:
            if calls[: state["arrived"]]:
                await run_many(redis, calls[: state["arrived"]])
            raise Killed
        return await run_many(redis, calls, **options)

    def at(trip: int, arrived: int) -> None:
        state.update(trip=0, at=trip, arrived=arrived)

    monkeypatch.setattr(scripts, "run_many", dying)
    yield at
    at(0, 0)


@pytest.mark.parametrize("dedupe", [False, True])
async def test_killed_at_any_point_it_is_continued(
    redis: Redis, killing: Callable[[int, int], None], dedupe: bool
) -> None:
    undisturbed = await submit(redis, dedupe=dedupe)
    expected = await content(redis, undisturbed.job_id)
    continued = set()
    for trip in range(1, 20):
        for arrived in (0, 1, 2, 100):
            await redis.flushall()
            killing(trip, arrived)
            ended = True
            with suppress(Killed):
                await submit(redis, dedupe=dedupe)
                ended = False
            killing(0, 0)
            await silence(redis)
            again = await submit(redis, dedupe=dedupe)
            assert await content(redis, again.job_id) == expected
            assert again.rows == len(LINES)
            continued.add(again.continued)
            if not ended:
                assert again.resumed
                assert len(continued) > 4
                assert await redis.zcard(key("staging")) == 0
                return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("how", [asyncio.CancelledError, KeyboardInterrupt, OSError])
async def test_interrupted_it_is_continued_at_once(redis: Redis, how: type[BaseException]) -> None:
    expected = await content(redis, (await submit(redis)).job_id)
    await redis.flushall()

    class Interrupted(GivenLines):
        def lines(self) -> Iterator[Any]:
            for number, line in enumerate(super().lines()):
                if number == 70:
                    raise how
                yield line

    with suppress(how), pytest.MonkeyPatch.context() as patch:
        patch.setattr("producer.intake.reading._LINES", 8)
        await submit_lines(redis, Interrupted(DATA), model="target", name="first", say=print)
    (left,) = await jobs.statuses(redis)
    assert left.state is JobState.SUBMITTING
    said: list[str] = []
    again = await submit(redis, said=said)
    assert again.job_id == left.job_id
    assert said == [f"continued: {left.rows} rows were staged before"]
    assert 0 < again.continued == left.rows < len(LINES)
    assert (await jobs.status(redis, again.job_id)).name == "test"
    assert await content(redis, again.job_id) == expected


async def left_behind(redis: Redis, data: bytes = DATA, **options: Any) -> str:
    """A submission that was cut short before its end."""
    with pytest.MonkeyPatch.context() as patch:

        async def commit(*_: Any, **__: Any) -> str:
            raise asyncio.CancelledError

        patch.setattr(Submission, "commit", commit)
        with suppress(asyncio.CancelledError):
            await submit(redis, data, **options)
    (left,) = [job.job_id for job in await jobs.statuses(redis) if job.state is JobState.SUBMITTING]
    return left


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (DATA.replace(b"p21", b"p-21"), {}),
        (b"\n".join(LINES[:40]), {}),
        (DATA.replace(b"p1", b"p-1"), {}),
        (DATA, {"defaults": {"top_p": 0.5}}),
        (DATA, {"dedupe": True}),
        (DATA, {"reopens": False}),
    ],
    ids=["later-row", "shorter", "first-rows", "defaults", "dedupe", "stdin"],
)
async def test_something_else_is_a_job_of_its_own(redis: Redis, data: bytes, options: dict[str, Any]) -> None:
    left = await left_behind(redis)
    other = await submit(redis, data, **options)
    assert other.job_id != left
    assert other.continued == 0
    found = await content(redis, other.job_id)
    await redis.flushall()
    assert found == await content(redis, (await submit(redis, data, **options)).job_id)


async def test_what_may_still_grow_is_continued_by_a_longer_file(redis: Redis) -> None:
    left = await left_behind(redis)
    longer = await submit(redis, DATA + b"\n" + b"\n".join(LINES))
    assert longer.job_id == left
    assert longer.rows == 2 * len(LINES)


async def test_input_that_cannot_be_read_again_leaves_nothing(redis: Redis) -> None:
    with pytest.raises(ValueError, match="not enough"):
        await left_behind(redis, reopens=False)
    assert await redis.zcard(key("jobs")) == 0


class Gate:
    """Lets a producer make a certain number of round trips, then holds it."""

    def __init__(self, trips: int) -> None:
        self.trips = trips
        self.held = asyncio.Event()
        self.opened = asyncio.Event()

    async def passing(self, work: Callable[[], Awaitable[Any]]) -> Any:
        if self.trips == 0:
            self.held.set()
            await self.opened.wait()
        else:
            self.trips -= 1
        return await work()


@pytest.mark.parametrize("first_trips", range(2, 12))
@pytest.mark.parametrize("second_trips", [1, 2, 4, 100])
async def test_a_frozen_producer_and_the_one_that_went_on(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, first_trips: int, second_trips: int
) -> None:
    """The first is frozen, the second takes over, is held itself, and the first wakes up: whatever the order."""
    expected = await content(redis, (await submit(redis)).job_id)
    await redis.flushall()
    run_many = scripts.run_many
    gates: dict[Any, Gate] = {}

    async def gated(client: Redis, calls: Any, **options: Any) -> Any:
        owner = (
            next((argv[1] if name in ("stage", "commit") else argv[2]) for name, argv in calls)
            if calls[0][0] in ("stage", "commit", "take_over")
            else None
        )
        gate = gates.get(owner)
        if gate is None and owner is not None:
            gate = gates[owner] = Gate(first_trips if not gates else second_trips)
        work = lambda: run_many(client, calls, **options)  # noqa: E731
        return await (gate.passing(work) if gate else work())

    monkeypatch.setattr(scripts, "run_many", gated)
    first = asyncio.create_task(submit(redis))
    while not first.done() and not any(gate.held.is_set() for gate in gates.values()):
        await asyncio.sleep(0.001)
    await silence(redis)
    second = asyncio.create_task(submit(redis))
    while not second.done() and sum(gate.held.is_set() for gate in gates.values()) < (1 if first.done() else 2):
        await asyncio.sleep(0.001)
    for gate in gates.values():
        gate.opened.set()
        await asyncio.sleep(0.002)
    ended = await asyncio.gather(first, second, return_exceptions=True)
    assert not [end for end in ended if not isinstance(end, Submitted | SubmissionLost)], ended
    assert isinstance(ended[1], Submitted)
    if isinstance(ended[0], SubmissionLost):
        assert "took job" in str(ended[0])
        assert ended[1].continued > 0
    assert await content(redis, ended[1].job_id) == expected
    assert [job.job_id for job in await jobs.statuses(redis)] == [ended[1].job_id]


async def test_rows_that_cannot_be_read_again_are_not_taken_over(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a pipe that says nothing for a while: who reads it could not go on, and would have to start again."""
    commit, held, go_on = Submission.commit, asyncio.Event(), asyncio.Event()

    async def late(staged: Submission, *args: Any, **options: Any) -> str:
        monkeypatch.setattr(Submission, "commit", commit)
        held.set()
        await go_on.wait()
        return await commit(staged, *args, **options)

    monkeypatch.setattr(Submission, "commit", late)
    piped = asyncio.create_task(submit(redis, reopens=False))
    await held.wait()
    await silence(redis)
    of_file = await submit(redis)
    assert of_file.continued == 0
    go_on.set()
    assert (await piped).job_id == of_file.job_id


async def test_a_producer_that_is_alive_keeps_what_it_has(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_LOOK_SECONDS", 0.01)
    left = await left_behind(redis)
    await redis.hset(key("job", left), "owner", "somebody")  # heard of just now

    async def move() -> None:
        await asyncio.sleep(0.05)
        await redis.hincrby(key("job", left), "calls", 1)

    moving, said = asyncio.create_task(move()), []
    own = await submit(redis, said=said)
    await moving
    assert own.job_id != left
    assert own.continued == 0
    assert said == ["these rows are being submitted already, or were until just now: looking whether that goes on"]
    assert (await jobs.status(redis, left)).state is JobState.SUBMITTING


async def test_what_moves_while_it_is_read_up_to_is_left_alone(redis: Redis) -> None:
    left = await left_behind(redis)

    class Moving(GivenLines):
        def lines(self) -> Iterator[Any]:
            with SyncRedis(unix_socket_path=redis.connection_pool.connection_kwargs["path"]) as other:
                for number, line in enumerate(super().lines()):
                    if number == 60:
                        other.hincrby(key("job", left), "rows", 1)
                    yield line

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("producer.intake.reading._LINES", 8)
        own = await submit_lines(redis, Moving(DATA), model="target", name="test")
    assert own.job_id != left
    assert (own.rows, own.continued) == (len(LINES), 0)


async def test_one_that_was_just_killed_is_waited_for_and_then_continued(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(takeover, "SILENT_SECONDS", 0.2)
    left = await left_behind(redis)
    await redis.hset(key("job", left), "owner", "somebody")
    assert (await submit(redis)).job_id == left


async def test_what_was_left_can_be_cancelled_and_is_swept_a_day_later(redis: Redis) -> None:
    assert await cancel(redis, await left_behind(redis))
    left = await left_behind(redis)
    await redis.zadd(key("staging"), {left: 1})
    await submit(redis, b'{"prompt": "other"}')
    assert await jobs.status(redis, left) is None
