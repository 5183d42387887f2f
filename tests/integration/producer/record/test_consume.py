"""Consuming results: whatever dies between two steps, each row is in the file once and leaves Redis after that."""

import hashlib
import json
import random
import re
import subprocess
from pathlib import Path

import pytest
from redis.asyncio import Redis

from producer.cli.common import Refused
from producer.cli.consumed_file import ConsumedFile
from producer.record import consume, control, jobs, leases
from producer.record.keys import key
from producer.record.models import CHAT_URL, SHARD_ROWS, Outcome, Row, RowFault
from producer.record.submission import Submission

FAILED = RowFault("no", "no")


async def submitted(redis: Redis, rows: int) -> str:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(rows):
        row = Row(index=index, line=index + 1, custom_id=f"r{index}", url=CHAT_URL, body={})
        await staged.add(row, row.to_json())
    return await staged.commit(staged.job_id, insist=False)


async def answer(redis: Redis, *, fail: bool = False, size: int = 0) -> int:
    """End the rows of the next shard; how many."""
    claim = await leases.claim(redis, served="target", lease_ms=60_000)
    if claim is None:
        return 0
    ends = []
    for row in claim.rows:
        line = json.dumps({"custom_id": row.custom_id, "text": "\u2028é" + "x" * size}, ensure_ascii=False)
        ends.append(
            Outcome.failed_row(row.index, row.line, row.custom_id, FAILED)
            if fail
            else Outcome(row.index, line, failed=False)
        )
    assert await leases.finish(redis, [(claim.lease, ends)]) == [len(ends)]
    return len(ends)


async def taken(redis: Redis, job: str) -> consume.Batch:
    batch = await consume.take(redis, job)
    assert batch is not None
    return batch


def ids(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


async def consumed(redis: Redis, job: str) -> int:
    found = await jobs.status(redis, job)
    assert found is not None
    return found.consumed


async def test_what_is_not_trimmed_comes_again_and_what_is_trimmed_has_left(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    await answer(redis)
    first = await taken(redis, job)
    await answer(redis)
    assert await taken(redis, job) == first
    assert (first.consumed, first.digest, len(first.lines)) == (0, "", SHARD_ROWS)
    assert await consume.trim(redis, job, first, "of the first")
    assert not await consume.trim(redis, job, first), "once is enough"
    second = await taken(redis, job)
    assert (second.consumed, second.digest) == (SHARD_ROWS, "of the first")
    assert await consume.look(redis, job) == second
    assert not set(second.lines) & set(first.lines)
    assert not await consume.trim(redis, job, first), "nobody trims what he has not written"
    assert await consume.trim(redis, job, second, "of all")
    assert await taken(redis, job) == consume.Batch(2 * SHARD_ROWS, "of all", [])
    gone = [key(name, job) for name in ("results", "finished", "taken", "failed")]
    assert await redis.exists(*gone) == 0


async def test_a_look_sets_nothing_aside(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answer(redis, fail=True)
    seen = await consume.look(redis, job)
    assert await redis.exists(key("taken", job)) == 0
    assert await control.retry(redis, job) == SHARD_ROWS
    assert await answer(redis, fail=True) == SHARD_ROWS
    assert seen != await consume.look(redis, job), "these are other errors"


async def test_a_row_that_is_taken_is_not_retried(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    await answer(redis, fail=True)
    batch = await taken(redis, job)
    await answer(redis, fail=True)
    assert await control.retry(redis, job) == SHARD_ROWS
    assert await taken(redis, job) == batch
    await consume.trim(redis, job, batch)
    assert await answer(redis) == SHARD_ROWS
    last = await taken(redis, job)
    await consume.trim(redis, job, last)
    rows = [json.loads(line)["custom_id"] for line in [*batch.lines, *last.lines]]
    assert sorted(rows) == sorted(f"r{index}" for index in range(2 * SHARD_ROWS))


async def test_a_batch_is_bounded_in_bytes_and_never_empty(redis: Redis) -> None:
    job = await submitted(redis, 16)
    await answer(redis, size=3 << 20)
    sizes = []
    while (batch := await taken(redis, job)).lines:
        sizes.append(len(batch.lines))
        await consume.trim(redis, job, batch)
    assert sizes == [2] * 8


async def test_no_job_and_one_in_submission(redis: Redis) -> None:
    assert await consume.take(redis, "nosuch") is None
    staged = await Submission.begin(redis, model="target", name="test")
    await staged.refuse(Outcome.failed_row(0, 1, None, FAILED))
    assert await consume.take(redis, staged.job_id) == consume.Batch(0, "", []), "it may yet be discarded"


async def test_a_full_redis_is_emptied_by_consuming(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answer(redis)
    await redis.config_set("maxmemory", 1)
    try:
        batch = await taken(redis, job)
        assert await consume.trim(redis, job, batch)
    finally:
        await redis.config_set("maxmemory", 0)
    assert len(batch.lines) == await consumed(redis, job) == SHARD_ROWS


@pytest.mark.parametrize("seed", range(12))
async def test_crashes_between_all_steps(redis: Redis, tmp_path: Path, seed: int) -> None:
    """A consumer that may die after each step, and in the middle of a write, while rows go on ending."""
    chance = random.Random(seed)
    rows, path = 20 * SHARD_ROWS + 5, tmp_path / "out.jsonl"
    job = await submitted(redis, rows)
    while await consumed(redis, job) < rows:
        with ConsumedFile.opened(path, job) as file:
            while chance.random() > 0.3:  # else it dies before it takes
                for _ in range(chance.randrange(3)):
                    await answer(redis, fail=chance.random() < 0.3)
                batch = await taken(redis, job)
                if chance.random() < 0.2:  # it dies while it writes
                    written = file.missing(batch)
                    with path.open("ab") as stream:
                        stream.write(written[: chance.randint(0, len(written))])
                    break
                digest = file.put(batch)
                if chance.random() < 0.2:  # it dies before it trims
                    break
                await consume.trim(redis, job, batch, digest)
                if chance.random() < 0.2:  # it does not hear that it has trimmed
                    assert not await consume.trim(redis, job, batch)
    assert sorted(ids(path)) == sorted(f"r{index}" for index in range(rows))
    assert (await taken(redis, job)).digest == hashlib.sha256(path.read_bytes()).hexdigest()


async def test_two_consumers_with_a_file_each_harm_nothing(redis: Redis, tmp_path: Path) -> None:
    """Whoever trims has all that left Redis; the other one finds that its file is too short."""
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis)
    with ConsumedFile.opened(tmp_path / "slow", job) as slow, ConsumedFile.opened(tmp_path / "fast", job) as fast:
        stale = await taken(redis, job)
        slow.put(stale)
        while (await answer(redis)) or (await taken(redis, job)).lines:
            batch = await taken(redis, job)
            assert await consume.trim(redis, job, batch, fast.put(batch))
        assert not await consume.trim(redis, job, stale)
        last = await taken(redis, job)
        with pytest.raises(Refused, match="has 16 lines, 48 of the job's results were consumed"):
            slow.put(last)
    assert len(set(ids(tmp_path / "fast"))) == 3 * SHARD_ROWS


async def test_a_record_that_is_older_than_the_file(redis: Redis, tmp_path: Path) -> None:
    """Redis came back without its last second, rows were computed again: the file goes on as its message says."""
    job = await submitted(redis, 3 * SHARD_ROWS)
    path, new = tmp_path / "it's out", tmp_path / "NEW"

    async def consume_into(file: ConsumedFile) -> None:
        while (batch := await taken(redis, job)).lines:
            await consume.trim(redis, job, batch, file.put(batch))

    with ConsumedFile.opened(path, job) as file:
        await answer(redis)
        await consume_into(file)
        before = {name: await redis.dump(name) for name in await redis.keys()}
        await answer(redis, fail=True)
        await consume_into(file)
        await redis.flushall()
        for name, dumped in before.items():
            await redis.restore(name, 0, dumped)
        await answer(redis, fail=True)
        with pytest.raises(Refused, match="another line 17 than the job") as told:
            await consume_into(file)
    command = re.search(r"`(head .*?)`", str(told.value))
    assert command
    subprocess.run(command[1], shell=True, check=True, cwd=tmp_path)  # noqa: ASYNC221 - nobody waits for it
    with ConsumedFile.opened(new, job) as file:
        await answer(redis)
        await consume_into(file)
    assert sorted(ids(new)) == sorted(f"r{index}" for index in range(3 * SHARD_ROWS))
    assert await consumed(redis, job) == 3 * SHARD_ROWS
