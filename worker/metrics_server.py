"""Where Prometheus finds a worker's metrics."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from worker.settings import DEFAULT_METRICS_PORT, UsageError

log = logging.getLogger(__name__)

#: How many workers of one machine find a port of their own.
_PORTS = 100


@contextmanager
def serve_metrics(host: str, port: int | None) -> Iterator[int]:
    """Serve /metrics in a thread while the block runs; gives the port.

    Args:
        host: address to listen on.
        port: taken as it is, 0 for any free one; None for the default one or the next that is free.

    Raises:
        UsageError: the asked port is taken, or the address cannot be listened on.
    """
    candidates = range(DEFAULT_METRICS_PORT, DEFAULT_METRICS_PORT + _PORTS) if port is None else [port]
    for candidate in candidates:
        try:
            server, thread = start_http_server(candidate, addr=host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            raise UsageError(f"metrics: cannot listen on {host}:{candidate}: {error.strerror}") from None
        break
    else:
        raise UsageError(f"--metrics-port: all of {candidates[0]} to {candidates[-1]} are taken on {host}")
    chosen = server.server_port
    if port is None and chosen != DEFAULT_METRICS_PORT:
        log.warning("port %d is taken: metrics are on the next free one", DEFAULT_METRICS_PORT)
    log.info("metrics: http://%s:%d/metrics", host, chosen)
    try:
        yield chosen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
