"""The network between one worker and Redis, as bad as asked for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Proxy:
    """Passes TCP connections on to a Unix socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._port = 0
        self._latency = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where a worker finds Redis."""
        return f"redis://127.0.0.1:{self._port}"

    async def listen(self) -> None:
        """Be there; at the same port when it was there before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Be gone, with every connection."""
        if self._server is not None:
            self._server.close()
        self._reset()

    @asynccontextmanager
    async def slow(self, seconds: float) -> AsyncIterator[None]:
        """Each piece of data takes so much longer, both ways."""
        self._latency = seconds
        try:
            yield
        finally:
            self._latency = 0.0

    @asynccontextmanager
    async def cut(self, way: str) -> AsyncIterator[None]:
        """Connections are closed ("reset"), closed and not taken ("refused"), or silent ("black hole").

        After a black hole everything that was sent arrives late, as after a switch that came back.
        """
        match way:
            case "reset":
                self._reset()
                yield
                self._reset()
            case "refused":
                self.close()
                yield
                await self.listen()
            case "black hole":
                self._open.clear()
                yield
                self._open.set()

    def _reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        except OSError:  # Redis is away
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        pumps = [asyncio.ensure_future(self._pump(*pair)) for pair in ((reader, up_writer), (up_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, up_writer):
                self._writers.discard(end)
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._latency:
                    await asyncio.sleep(self._latency)
                await self._open.wait()
                writer.write(data)
                await writer.drain()
