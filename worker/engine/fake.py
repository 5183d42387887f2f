"""An engine without a model, for tests and chaos: `worker run --engine fake`.

Its answers depend on the row's body alone, so a row answered twice, by any worker, reads the same. What it can
be told to do, in one string of flags (`--engine-args`), is listed by `FakePlan`.
"""

import argparse
import asyncio
import hashlib
import json
import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from producer.record.models import CHAT_URL, Answer, Row
from worker.engine.protocol import EngineDead, EngineStartError, RowError
from worker.engine.rows import check_row

_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "larch")


@dataclass
class FakePlan:
    """What the fake engines of one worker do.

    Attributes:
        seconds_per_row: time that an answer takes (`--seconds-per-row`).
        tokens_per_row: length of an answer in words, at most the row's `max_tokens` (`--tokens-per-row`).
        fail_every: every N-th row of a job is a row error; 0: none (`--fail-every`).
        fail_on: a row whose body has this text is a row error (`--fail-on`).
        kill_on: a row whose body has this text kills the whole worker, as kill -9 does (`--kill-on`).
        die_after: an engine dies when it has given this many answers; 0: never (`--die-after`).
        die_at_start: how many engines die while starting before one lives (`--die-at-start`).
        starts: engines started so far.
    """

    seconds_per_row: float = 0.0
    tokens_per_row: int = 16
    fail_every: int = 0
    fail_on: str = ""
    kill_on: str = ""
    die_after: int = 0
    die_at_start: int = 0
    starts: int = field(default=0, init=False)

    @classmethod
    def parse(cls, flags: str) -> "FakePlan":
        """Read a string such as `--seconds-per-row 0.01 --fail-every 10`.

        Raises:
            EngineStartError: an unknown flag or a bad value.
        """
        parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        parser.add_argument("--seconds-per-row", type=float)
        for flag in ("--fail-on", "--kill-on"):
            parser.add_argument(flag, type=str)
        for flag in ("--tokens-per-row", "--fail-every", "--die-after", "--die-at-start"):
            parser.add_argument(flag, type=int)
        try:
            return cls(**vars(parser.parse_args(shlex.split(flags))))
        except ValueError as error:  # shlex: a quote that is never closed
            raise EngineStartError(f"--engine-args: {error}") from None


class FakeEngine:
    """Implements `Engine`; engines made from one plan share its count of starts."""

    def __init__(self, plan: FakePlan, served_model_name: str, max_num_seqs: int) -> None:
        self._plan = plan
        self._served = (served_model_name,)
        self._capacity = max_num_seqs
        self._slots = asyncio.Semaphore(max_num_seqs)
        self._answers = 0
        self._died = asyncio.Event()
        self._reason = ""

    @property
    def capacity(self) -> int:
        """How many rows it answers at once."""
        return self._capacity

    async def start(self) -> None:
        """Be ready at once, or die as planned."""
        self._plan.starts += 1
        if self._plan.starts <= self._plan.die_at_start:
            self._die(f"died at start {self._plan.starts} as planned")
            raise EngineDead(self._reason)

    async def answer(self, row: Row, job: str = "") -> Answer:
        """Answer a row, or fail it, or die, as planned; whatever its job."""
        async with self._slots:
            await self._work()
            if self._died.is_set():
                raise EngineDead(self._reason)
            check_row(row, self._served)
            self._fail_as_planned(row)
            self._answers += 1
            if self._answers == self._plan.die_after:
                self._die(f"died after {self._answers} answers as planned")
            return fake_answer(row, self._served[0], self._plan.tokens_per_row)

    async def wait_dead(self) -> str:
        """Return when it has died as planned."""
        await self._died.wait()
        return self._reason

    async def close(self) -> None:
        """Answer nothing any more."""
        if not self._died.is_set():
            self._die("was closed")

    async def _work(self) -> None:
        """Take the time of one answer, less when the engine dies meanwhile."""
        if self._plan.seconds_per_row > 0:
            try:
                await asyncio.wait_for(self._died.wait(), self._plan.seconds_per_row)
            except TimeoutError:
                return

    def _fail_as_planned(self, row: Row) -> None:
        every, text, killer = self._plan.fail_every, self._plan.fail_on, self._plan.kill_on
        if killer and killer in _canonical(row.body):
            os.kill(os.getpid(), signal.SIGKILL)
        if (every and (row.index + 1) % every == 0) or (text and text in _canonical(row.body)):
            raise RowError("fake_failure", "the fake engine failed this row as planned")

    def _die(self, reason: str) -> None:
        self._reason = f"the fake engine {reason}"
        self._died.set()


def fake_answer(row: Row, model: str, most_tokens: int) -> Answer:
    """The answer to a row: words drawn from its body, in OpenAI's response shape."""
    body = _canonical(row.body)
    limit = row.body.get("max_completion_tokens") or row.body.get("max_tokens")
    count = max(0, min(most_tokens, limit)) if type(limit) is int else most_tokens
    digest = hashlib.sha256(f"{row.url}\n{body}".encode(errors="replace"))
    words = hashlib.shake_256(digest.digest()).digest(count)
    text = " ".join(_WORDS[byte % len(_WORDS)] for byte in words)
    prompt_tokens = len(body.split())
    chat = row.url == CHAT_URL
    choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    response = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{digest.hexdigest()[:24]}",
        "object": "chat.completion" if chat else "text_completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, **choice, "logprobs": None, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": count,
            "total_tokens": prompt_tokens + count,
        },
    }
    return Answer(response, prompt_tokens, count)


def _canonical(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EngineStartError(f"--engine-args: {message}")
