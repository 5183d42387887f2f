"""Outlasting an absent Redis: what is waited for, for how long, and what is said."""

import pytest
from redis import exceptions

from producer.record import outage
from producer.record.outage import ANY_WEATHER, outlast

GONE = exceptions.ConnectionError("Connection refused")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "_SOON_SECONDS", 0.001)


class Flaky:
    """Fails in these ways, one after the other, and answers then."""

    def __init__(self, *errors: Exception) -> None:
        self.left = list(errors)
        self.said: list[str] = []

    async def ask(self) -> str:
        if self.left:
            raise self.left.pop(0)
        return "answer"


async def test_it_is_said_once_that_one_waits() -> None:
    redis = Flaky(GONE, exceptions.TimeoutError("t"), exceptions.BusyLoadingError("loading"), GONE)
    assert await outlast(redis.ask, say=redis.said.append) == "answer"
    assert redis.said == ["Redis is away, waiting for it: Connection refused"]


@pytest.mark.parametrize(
    ("error", "any_weather_too"),
    [
        (exceptions.AuthenticationError("no"), False),
        (exceptions.ResponseError("ERR wrong number of arguments"), False),
        (exceptions.OutOfMemoryError("OOM"), True),
        (exceptions.ResponseError("MISCONF no disk"), True),
    ],
)
async def test_what_is_not_waited_for_ends_it_at_once(error: Exception, any_weather_too: bool) -> None:
    redis = Flaky(error)
    with pytest.raises(type(error)):
        await outlast(redis.ask, say=redis.said.append)
    assert redis.said == []
    if any_weather_too:
        redis.left = [error]
        assert await outlast(redis.ask, say=redis.said.append, weather=ANY_WEATHER) == "answer"
        assert redis.said == [f"Redis cannot, waiting for it: {error}"]
    else:
        redis.left = [error]
        with pytest.raises(type(error)):
            await outlast(redis.ask, say=redis.said.append, weather=ANY_WEATHER)


async def test_patience_ends() -> None:
    redis = Flaky(*[GONE] * 1000)
    with pytest.raises(exceptions.ConnectionError, match="refused"):
        await outlast(redis.ask, say=redis.said.append, seconds=0.05)
    assert 2 < 1000 - len(redis.left) < 1000
