"""Fixtures for every tier, and the rule that CI skips nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis_fixture import running_redis

from producer.server.embedded import EmbeddedRedis

#: Tests that compute on all cores, or measure: they run one at a time, the others side by side.
CORES = (
    "integration/worker/engine",
    "integration/worker/lab",
    "integration/worker/minedraft",
    "integration/worker/models",
    "acceptance/test_demo.py",
    "acceptance/test_instruments.py",
    "acceptance/test_real_engine.py",
    "acceptance/test_users_ask_real.py",
    "chaos/test_lost_drafter.py",
    "chaos/test_soak.py",
    "chaos/test_storm.py",
    "chaos/test_two_batches.py",
    "unit/worker/lab/test_quiet.py",
)


def pytest_configure() -> None:
    # A shell lets what it runs in the background ignore Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(CORES):
            item.add_marker("cores")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A real Redis server, one for the whole session."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The URL of the session's server, emptied for this test."""
    with Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A skip says on a user's machine what is missing; in CI nothing may be missing."""
    if os.environ.get("CI") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("CI: tests were skipped, which fails this run", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = 1
