"""How each kind of fault is done to the workers, the producers, Redis, the tokens and the network."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from chaos.storm.fleet import Fleet, Slot
from chaos.storm.measure import Meter
from chaos.storm.progress import Progress
from chaos.storm.schedule import Fault, Kind
from chaos.storm.server import Server
from redis.exceptions import RedisError

#: Most tokens that are added at once.
_TOKENS = 40

#: Most time by which a slow network delays each piece of data, each way (seconds).
_LATENCY = 0.4


class Faults:
    """Does faults, one after the other; those that last, and are not Redis's, go on beside the next ones.

    Args:
        queue: the name of arq's queue.
        kill_producer: what it takes to kill one that has read a share of its file.
    """

    def __init__(
        self,
        server: Server,
        fleet: Fleet,
        progress: Progress,
        meter: Meter,
        queue: str,
        kill_producer: Callable[[float], Awaitable[None]],
    ) -> None:
        self._server = server
        self._redis = server.client
        self._fleet = fleet
        self._progress = progress
        self._meter = meter
        self._queue = queue
        self._kill_producer = kill_producer

    async def do(self, fault: Fault) -> None:
        """One fault."""
        match fault.kind:
            case Kind.KILL_WORKER:
                await self._kill_worker(fault)
            case Kind.FREEZE_WORKER:
                await self._ail(fault, self._fleet.frozen)
            case Kind.ROLL_WORKER:
                self._fleet.replace(await self._fleet.undisturbed(fault.victim))
            case Kind.KILL_PRODUCER:
                await self._kill_producer(fault.part)
            case Kind.REDIS_RESTART:
                await self._away(fault, self._server.stop())
            case Kind.REDIS_KILL | Kind.REDIS_AWAY:
                await self._away(fault, self._server.kill())
            case Kind.DISK_FULL:
                await self._starved(fault, self._server.disk_full())
            case Kind.OUT_OF_MEMORY:
                await self._starved(fault, self._server.out_of_memory())
            case Kind.TOKENS_DOUBLED | Kind.TOKENS_DELAYED | Kind.TOKENS_LOST:
                with suppress(RedisError):  # it may not be itself yet after the fault before
                    await self._tokens(fault)
            case Kind.SLOW_NETWORK:
                await self._ail(fault, lambda slot: slot.proxy.slow(_LATENCY * fault.part))
            case Kind.CUT_NETWORK:
                await self._ail(fault, lambda slot: slot.proxy.cut(fault.way))
            case Kind.DROP_CLIENTS:
                await self._redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def _kill_worker(self, fault: Fault) -> None:
        calm = fault.way == "in calm"
        if calm:
            await self._fleet.settle()
        slot = await self._fleet.undisturbed(fault.victim)
        killed = time.monotonic()
        await self._fleet.kill(slot)
        watched = self._meter.reclaimed(await self._meter.snapshot(), killed, calm=calm)
        if calm:
            await watched
        else:
            self._fleet.later(watched)

    async def _ail(self, fault: Fault, ill: Callable[[Slot], AbstractAsyncContextManager[None]]) -> None:
        slot = await self._fleet.undisturbed(fault.victim)

        async def spell() -> None:
            with self._fleet.ailing(slot):
                async with ill(slot):
                    await asyncio.sleep(fault.seconds)

        self._fleet.later(spell())
        await asyncio.sleep(0)  # it is ill now, before anyone looks for the next victim

    async def _away(self, fault: Fault, end: Coroutine[Any, Any, None]) -> None:
        with self._progress.storm():
            await end
            await asyncio.sleep(fault.seconds)
            await self._server.start()
        await self._back()

    async def _starved(self, fault: Fault, short: AbstractAsyncContextManager[None]) -> None:
        with self._progress.storm():
            async with short:
                await asyncio.sleep(fault.seconds)
        await self._back()

    async def _back(self) -> None:
        """Redis is well again: see work go on, for a moment at least."""
        again = asyncio.ensure_future(self._meter.rows_again())
        self._fleet.later(again)
        await asyncio.wait([again], timeout=5)

    async def _tokens(self, fault: Fault) -> None:
        tokens = await self._redis.zrange(self._queue, 0, -1)
        payloads = [f"arq:job:{token}" for token in tokens]
        match fault.kind:
            case Kind.TOKENS_DOUBLED:
                payload = next(filter(None, await self._redis.mget(payloads)), None) if payloads else None
                for number in range(1 + int(_TOKENS * fault.part)):
                    token = secrets.token_hex(16)
                    if payload and number % 4:  # every fourth has none
                        await self._redis.set(f"arq:job:{token}", payload, ex=3600)
                    await self._redis.zadd(self._queue, {token: time.time() * 1000})
            case Kind.TOKENS_DELAYED if tokens:
                until = (time.time() + fault.seconds) * 1000
                await self._redis.zadd(self._queue, dict.fromkeys(tokens, until), xx=True)
            case Kind.TOKENS_LOST if tokens:
                # arq's count of pickups goes with a token: nobody would ever take it away.
                counts = [f"arq:retry:{token}" for token in tokens]
                whole = [self._queue, *counts] if fault.way == "whole" else []
                await self._redis.delete(*payloads, *whole)
