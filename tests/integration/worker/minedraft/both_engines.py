"""Rows for plain decoding and for the two-batch engine, one after the other, and what their answers differ in."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from integration.worker.minedraft.cases import GENERATED
from prometheus_client import REGISTRY

from producer.record.models import Answer, Row
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft.stages import DRAFTER, Records, StageReader, ring_path, verifier_name

#: What the models are called here, and so in vLLM's metrics.
SERVED = "pair"
#: What plain decoding is asked for beside the answer, so that a difference can be explained.
TOP_TWO = {
    "/v1/completions": {"logprobs": 2},
    "/v1/chat/completions": {"logprobs": True, "top_logprobs": 2},
}


@asynccontextmanager
async def running(options: VllmOptions) -> AsyncIterator[VllmEngine]:
    """An engine from start to end."""
    engine = VllmEngine(options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def ask(engine: VllmEngine, rows: Iterable[Row], **more: Any) -> list[Answer]:
    """All answers, with their token ids; `more` is asked for where the row itself does not."""
    whole = {"return_token_ids": True, **more}
    return await asyncio.gather(*(engine.answer(replace(row, body={**whole, **row.body})) for row in rows))


async def ask_plain(engine: VllmEngine, rows: Sequence[Row]) -> list[Answer]:
    """All answers, with the two likeliest tokens of every step."""
    asked = [replace(row, body={**TOP_TWO[row.url], **row.body}) for row in rows]
    return await ask(engine, asked, return_tokens_as_token_ids=True)


def choices(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    return [choice for answer in answers for choice in answer.body["choices"]]


def text(choice: dict[str, Any]) -> str:
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def differences(plain: Sequence[Answer], ours: Sequence[Answer]) -> list[str]:
    """What of `ours` is not what plain decoding answered; empty when all is the same."""
    pairs = zip(choices(plain), choices(ours), strict=True)
    return [_explain(one, other) for one, other in pairs if _outcome(one) != _outcome(other)]


def assert_same_logprobs(plain: Sequence[Answer], ours: Sequence[Answer]) -> None:
    """Compare what two engines say of the tokens of a text and of its prompt, to what floats may differ in."""
    for one, other in zip(choices(plain), choices(ours), strict=True):
        for kind in ("top_logprobs", "token_logprobs"):
            for of_plain, of_ours in zip(one["logprobs"][kind], other["logprobs"][kind], strict=True):
                assert of_ours == pytest.approx(of_plain, abs=1e-4)
        for of_plain, of_ours in zip(one["prompt_logprobs"][1:], other["prompt_logprobs"][1:], strict=True):
            assert _logprobs(of_ours) == pytest.approx(_logprobs(of_plain), abs=1e-4)


def _logprobs(of_prompt: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {token: said["logprob"] for token, said in of_prompt.items()}


def _outcome(choice: dict[str, Any]) -> tuple[Any, ...]:
    return choice["token_ids"], text(choice), choice["finish_reason"], choice["stop_reason"]


def _explain(plain: dict[str, Any], ours: dict[str, Any]) -> str:
    """Both outcomes, and how sure plain decoding was where they part: a gap below 1e-4 may be a tie in float32."""
    ids = zip(plain["token_ids"], ours["token_ids"], strict=False)
    first = next((place for place, (one, other) in enumerate(ids) if one != other), None)
    gap = "" if first is None else f"; they part at token {first}, top-2 gap {_gap(plain['logprobs'], first)}"
    return f"plain {_outcome(plain)}, two batches {_outcome(ours)}{gap}"


def _gap(logprobs: dict[str, Any], place: int) -> float:
    if "content" in logprobs:
        likeliest = [entry["logprob"] for entry in logprobs["content"][place]["top_logprobs"]]
    else:
        likeliest = list(logprobs["top_logprobs"][place].values())
    first, second = sorted(likeliest, reverse=True)[:2]
    return float(first - second)


class Rings:
    """What the ranks of a running engine record from now on."""

    def __init__(self, engine: VllmEngine) -> None:
        assert engine._folder is not None
        folder = Path(engine._folder.name)
        self._readers = [StageReader(ring_path(folder, rank)) for rank in (verifier_name(0), DRAFTER)]
        for reader in self._readers:
            reader.read()
        self._before = self._lost()

    def read(self) -> tuple[Records, Records]:
        """The records since the last look, of the first verifier and of the drafter."""
        verifier, drafter = (reader.read() for reader in self._readers)
        assert self._lost() == self._before
        return verifier, drafter

    def _lost(self) -> list[int]:
        return [reader.lost for reader in self._readers]


def counted(name: str) -> float:
    """One of vLLM's counters."""
    value = REGISTRY.get_sample_value(name, {"engine": "0", "model_name": SERVED})
    assert value is not None
    return value


async def progress(tokens: int = 1) -> None:
    """Return when the engine has generated so many more."""
    before = counted(GENERATED)
    async with asyncio.timeout(60):
        while counted(GENERATED) < before + tokens:
            await asyncio.sleep(0.005)


def drafted(before: tuple[float, float] = (0, 0)) -> tuple[float, float]:
    """Drafts that were verified since then, and how many of them were accepted."""
    verified, accepted = (counted(f"vllm:spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted"))
    return verified - before[0], accepted - before[1]


def ranks() -> dict[str, psutil.Process]:
    """The two-batch engine's processes below this one, by name."""
    named = {process.name(): process for process in psutil.Process().children(recursive=True)}
    return {name: process for name, process in named.items() if name.startswith("minedraft::")}
