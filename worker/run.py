"""`worker run`: from flags to a worker at work, and to an exit code."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from producer.errors import NoRedisUrl, RedisUnavailable
from producer.record.connection import connect, plain_errors, shown
from producer.server.embedded import EmbeddedRedis
from producer.server.errors import ServerError
from worker.engine.protocol import EngineStartError
from worker.engine.supervisor import EngineSupervisor
from worker.engines import prepare
from worker.metrics import Metrics
from worker.metrics_server import serve_metrics
from worker.models.errors import ModelError
from worker.queue import preflight
from worker.queue.health import WORKER_PATIENCE
from worker.queue.preflight import UnfitRedis
from worker.resolve import resolve
from worker.service import Service
from worker.settings import RunSettings, UsageError, read_settings

log = logging.getLogger("worker")


def run(argv: Sequence[str]) -> int:
    """Be a worker until stopped; returns the exit code. Whatever goes wrong is one line on standard error."""
    try:
        resolved = resolve(read_settings(argv))
        settings = resolved.settings
        logging.basicConfig(
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        logging.getLogger("arq").setLevel(logging.ERROR)  # its warnings are about tokens, of which none matters
        for line in resolved.said:
            log.info("%s", line)
        asyncio.run(_serve(settings))
    except (UsageError, NoRedisUrl, UnfitRedis, EngineStartError, ModelError, ServerError) as error:
        return _fail(error, 2)
    except RedisUnavailable as error:
        return _fail(error, 3)
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(settings: RunSettings) -> None:
    url = settings.redis_url
    if url is None:
        url = await asyncio.to_thread(_embedded_redis)
    async with connect(url, WORKER_PATIENCE) as redis:
        async with plain_errors(url):
            await preflight.check(redis)
        metrics = Metrics()
        with serve_metrics(settings.metrics_host, settings.metrics_port):
            prepared = await asyncio.to_thread(prepare, settings)
            engine = EngineSupervisor(
                prepared.make, on_up=metrics.engine_up.set, on_restart=metrics.engine_restarts.inc
            )
            service = Service(
                redis,
                url,
                engine,
                served=settings.served,
                mode="fake" if settings.engine == "fake" else settings.mode,
                drain_seconds=settings.drain_seconds,
                metrics=metrics,
                facts=lambda: prepared.facts,
            )
            await service.run()


def _embedded_redis() -> str:
    """This user's own server, started when it is not up."""
    server = EmbeddedRedis()
    if server.start():
        log.info("started the embedded Redis at %s; it stays up (`producer redis stop` ends it)", shown(server.url))
    return server.url


def _fail(error: Exception, code: int) -> int:
    sys.stderr.write(f"worker: {' '.join(str(error).split())}\n")
    return code
