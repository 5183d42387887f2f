"""Jobs in a real Redis, for tests of the record: submitted, claimed, finished."""

from redis.asyncio import Redis

from producer.record import jobs, leases
from producer.record.jobs import JobOptions, JobStatus
from producer.record.keys import key
from producer.record.leases import Claim
from producer.record.models import CHAT_URL, Outcome, Row, RowFault
from producer.record.submission import Submission

LEASE_MS = 60_000


def row(index: int) -> Row:
    return Row(index, index + 1, f"r{index}", CHAT_URL, {"n": index})


async def submitted(redis: Redis, rows: int, *, refused: int = 0, **options: float) -> str:
    staged = await Submission.begin(redis, model="target", name="test", options=JobOptions(**options))  # type: ignore[arg-type]
    for index in range(rows):
        await staged.add(row(index), row(index).to_json())
    for index in range(rows, rows + refused):
        await staged.refuse(Outcome.failed_row(index, index + 1, None, RowFault("bad", "bad")))
    return await staged.commit(staged.job_id, insist=False)


async def stats(redis: Redis, job_id: str) -> JobStatus:
    found = await jobs.status(redis, job_id)
    assert found is not None
    return found


async def claimed(redis: Redis) -> Claim:
    found = await leases.claim(redis, served="target", lease_ms=LEASE_MS)
    assert found is not None
    return found


async def nothing_to_claim(redis: Redis) -> bool:
    return await leases.claim(redis, served="target", lease_ms=LEASE_MS) is None


async def finish(redis: Redis, claim: Claim, *, failed: bool = False) -> int | None:
    ends = [Outcome(each.index, f'"{each.custom_id}"', failed, 1, 2) for each in claim.rows]
    return (await leases.finish(redis, [(claim.lease, ends)]))[0]


async def keys(redis: Redis, job: str) -> set[str]:
    """What there is of a job, without its name."""
    return {name.removeprefix(f"minedraft:job:{job}").removeprefix(":") for name in await redis.keys(f"*{job}*")}


async def expire(redis: Redis) -> None:
    for lease in await redis.zrange(key("leases"), 0, -1):
        await redis.zadd(key("leases"), {lease: 1})
    await leases.reap(redis)
