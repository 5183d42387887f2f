"""Servers that change places: a primary found through Redis Sentinel, and replicas that are left again."""

from typing import Any, Self
from urllib.parse import unquote, urlsplit

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.exceptions import ResponseError

from producer.record.trouble import Trouble, trouble

_SENTINEL_PORT = 26379

#: Parameters of the URL that are for the sentinels themselves begin so.
_FOR_SENTINELS = "sentinel_"


class SentinelPool(SentinelConnectionPool):
    """Connections to whichever server the sentinels name as the primary when a connection is made."""

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Read `sentinel://[user:password@]host[:port][,host[:port]...]/NAME[?db=0&sentinel_password=...]`.

        User and password are the servers'; those of the sentinels are the parameters `sentinel_username` and
        `sentinel_password`. Other parameters are redis-py's. `sentinels://` speaks TLS with all of them, under the
        same `ssl_...` parameters.

        Raises:
            ValueError: it is no such URL.
        """
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        name = unquote(parts.path.strip("/"))
        if not hosts or not name:
            raise ValueError("the form is sentinel://host:port,host:port/NAME")
        said: dict[str, Any] = dict(parse_url(f"redis://{user}@?{parts.query}" if user else f"redis://?{parts.query}"))
        asking = {
            key.removeprefix(_FOR_SENTINELS): said.pop(key) for key in list(said) if key.startswith(_FOR_SENTINELS)
        }
        options |= said
        # Timeouts and certificates are the same for both.
        asking |= {key: value for key, value in options.items() if key.startswith(("socket_", "ssl_"))}
        tls = {"ssl": True} if parts.scheme == "sentinels" else {}
        sentinels = Sentinel([_address(host) for host in hosts.split(",")], sentinel_kwargs=asking | tls)
        return cls(name, sentinels, **options, **tls)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """As the base class; a pool that is closed for good leaves the sentinels, too."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


def leave_replicas(pool: ConnectionPool) -> None:
    """Let the pool's connections close when their server turns out to be a replica.

    Behind a name, or a sentinel, the primary is another server by then; it is found by connecting anew.
    """
    kind = pool.connection_class

    class Leaving(kind):  # type: ignore[misc, valid-type]
        async def read_response(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return await super().read_response(*args, **kwargs)
            except ResponseError as error:
                if trouble(error) is Trouble.READ_ONLY:
                    await self.disconnect()
                raise

    pool.connection_class = Leaving


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(f"{host!r} is no host")
    return parts.hostname, parts.port or _SENTINEL_PORT
