"""How each kind of fault is done to workers, producers, consumers, jobs, Redis, the tokens and the network."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from chaos.storm.commands import Commands
from chaos.storm.consumers import Consumers
from chaos.storm.fleet import Fleet, Slot
from chaos.storm.measure import Meter
from chaos.storm.progress import Progress
from chaos.storm.schedule import Fault, Kind
from chaos.storm.server import Server
from redis.exceptions import RedisError

#: Most tokens that are added at once.
_TOKENS = 40

#: How long a fault of tokens waits for some.
_TOKENS_SECONDS = 15.0

#: Most time by which a slow network delays each piece of data, each way (seconds).
_LATENCY = 0.4


class Faults:
    """Does faults, one after the other; those that last, and are not Redis's, go on beside the next ones.

    Args:
        queue: the name of arq's queue.
        kill_producer: what it takes to kill one that has read a share of its file; tells whether it had staged rows.
    """

    def __init__(
        self,
        server: Server,
        fleet: Fleet,
        progress: Progress,
        meter: Meter,
        consumers: Consumers,
        commands: Commands,
        *,
        queue: str,
        kill_producer: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._server = server
        self._redis = server.client
        self._fleet = fleet
        self._progress = progress
        self._meter = meter
        self._commands = commands
        self._queue = queue
        self._ways: dict[Kind, Callable[[Fault], Awaitable[bool]]] = {
            Kind.KILL_WORKER: self._kill_worker,
            Kind.FREEZE_WORKER: self._freeze_worker,
            Kind.ROLL_WORKER: self._roll_worker,
            Kind.KILL_PRODUCER: lambda fault: kill_producer(fault.part),
            Kind.REDIS_RESTART: lambda fault: self._away(fault, server.stop()),
            Kind.REDIS_KILL: lambda fault: self._away(fault, server.kill()),
            Kind.REDIS_AWAY: lambda fault: self._away(fault, server.kill()),
            Kind.DISK_FULL: lambda fault: self._starved(fault, server.disk_full()),
            Kind.OUT_OF_MEMORY: lambda fault: self._starved(fault, server.out_of_memory()),
            Kind.TOKENS_DOUBLED: self._tokens,
            Kind.TOKENS_DELAYED: self._tokens,
            Kind.TOKENS_LOST: self._tokens,
            Kind.SLOW_NETWORK: lambda fault: self._ail(fault, lambda slot: slot.proxy.slow(_LATENCY * fault.part)),
            Kind.CUT_NETWORK: lambda fault: self._ail(fault, lambda slot: slot.proxy.cut(fault.way)),
            Kind.DROP_CLIENTS: self._drop_clients,
            Kind.KILL_CONSUMER: lambda fault: consumers.kill(fault.victim),
            Kind.PAUSE_JOB: self._pause,
            Kind.URGENT_JOB: lambda _: commands.urgent(),
            Kind.CANCEL_JOB: lambda _: commands.cancelled(),
        }

    async def do(self, fault: Fault) -> bool:
        """One fault; False when there was nothing to break."""
        return await self._ways[fault.kind](fault)

    async def _freeze_worker(self, fault: Fault) -> bool:
        return await self._ail(fault, self._fleet.frozen)

    async def _roll_worker(self, fault: Fault) -> bool:
        self._fleet.replace(await self._fleet.undisturbed(fault.victim))
        return True

    async def _drop_clients(self, _: Fault) -> bool:
        with self._progress.storm():
            return await self._redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0

    async def _kill_worker(self, fault: Fault) -> bool:
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
        return True

    async def _ail(self, fault: Fault, ill: Callable[[Slot], AbstractAsyncContextManager[None]]) -> bool:
        slot = await self._fleet.undisturbed(fault.victim)

        async def spell() -> None:
            with self._fleet.ailing(slot):
                async with ill(slot):
                    await asyncio.sleep(fault.seconds)

        self._fleet.later(spell())
        await asyncio.sleep(0)  # it is ill now, before anyone looks for the next victim
        return True

    async def _away(self, fault: Fault, end: Coroutine[Any, Any, None]) -> bool:
        with self._progress.storm():
            await end
            await asyncio.sleep(fault.seconds)
            await self._server.start()
        return await self._back()

    async def _starved(self, fault: Fault, short: AbstractAsyncContextManager[None]) -> bool:
        with self._progress.storm():
            async with short:
                await asyncio.sleep(fault.seconds)
        return await self._back()

    async def _back(self) -> bool:
        """Redis is well again: see work go on, for a moment at least."""
        again = asyncio.ensure_future(self._meter.rows_again())
        self._fleet.later(again)
        await asyncio.wait([again], timeout=5)
        return True

    async def _pause(self, fault: Fault) -> bool:
        job = await self._commands.pause()
        if job is None:
            return False
        self._fleet.later(self._commands.resume(job, fault.seconds))
        await asyncio.sleep(0)
        return True

    async def _tokens(self, fault: Fault) -> bool:
        """As soon as there are some: an idle fleet takes them at once, and Redis may not be itself yet."""
        deadline = time.monotonic() + _TOKENS_SECONDS
        while time.monotonic() < deadline:
            with suppress(RedisError, OSError):
                tokens = await self._redis.zrange(self._queue, 0, -1)
                if tokens and await self._spoil(fault, tokens):
                    return True
            await asyncio.sleep(0.1)
        return False

    async def _spoil(self, fault: Fault, tokens: list[str]) -> int:
        """How many tokens, or parts of them, it did something to."""
        payloads = [f"arq:job:{token}" for token in tokens]
        match fault.kind:
            case Kind.TOKENS_DOUBLED:
                payload = next(filter(None, await self._redis.mget(payloads)), None)
                doubles = 2 + int(_TOKENS * fault.part) if payload else 0
                for number in range(doubles):
                    token = secrets.token_hex(16)
                    if number % 4:  # every fourth has none
                        await self._redis.set(f"arq:job:{token}", payload, ex=3600)
                    await self._redis.zadd(self._queue, {token: time.time() * 1000})
                return doubles
            case Kind.TOKENS_DELAYED:
                until = (time.time() + fault.seconds) * 1000
                return int(await self._redis.zadd(self._queue, dict.fromkeys(tokens, until), xx=True, ch=True))
            case _:
                # arq's count of pickups goes with a token: nobody would ever take it away.
                counts = [f"arq:retry:{token}" for token in tokens]
                whole = [self._queue, *counts] if fault.way == "whole" else []
                return int(await self._redis.delete(*payloads, *whole))
