"""Answers rows again in plain decoding and says what of the job's answers is not the same."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, Protocol

from producer.record.models import CHAT_URL, Answer, Row
from worker.engine.protocol import EngineDead, EngineDown, RowError, TransientError
from worker.verify.comparable import Kind
from worker.verify.given import Given
from worker.verify.model import ModelFacts
from worker.verify.outcomes import Difference, choice_of, differences
from worker.verify.parting import Parting, closest, part
from worker.verify.ties import TieRule

#: Tokens that plain decoding is asked for at each place. A tie's other side is among the first.
_CANDIDATES = 5
#: How often a row is tried that the engine fails on, or dies with.
_TRIES = 3


class Verdict(IntEnum):
    """What a row came to; the larger the worse."""

    IDENTICAL = 0
    TIE = 1
    DIFFERENT = 2

    @property
    def word(self) -> str:
        """For people and programs."""
        return ("identical", "float tie", "different")[self]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a row came to.

    Attributes:
        custom_id: the row's name.
        line: its line in the submitted file, from 1.
        kind: how its tokens are chosen.
        verdict: the worst of its choices.
        difference: what is not the same, where something is.
        parting: the token where the texts part, where that could be seen.
        limit: the gap below which it is a tie (logits), where there is a gap.
        note: what else there is to say.
    """

    custom_id: str
    line: int
    kind: Kind
    verdict: Verdict
    difference: Difference | None = None
    parting: Parting | None = None
    limit: float | None = None
    note: str = ""


class Plain(Protocol):
    """An engine in plain decoding that is replaced when it dies (`EngineSupervisor`)."""

    async def answer(self, row: Row) -> Answer:
        """Answer one row, as `Engine.answer`; or raise `EngineDown`."""
        ...

    async def ready(self) -> None:
        """Return when an engine lives."""
        ...


async def check(
    plain: Plain,
    rows: Sequence[Given],
    facts: ModelFacts,
    rule: TieRule,
    *,
    at_once: int,
    checked: Callable[[], object] = lambda: None,
) -> list[Finding]:
    """Answer rows again and compare, in their order.

    Args:
        plain: the engine.
        rows: what was asked and answered.
        facts: of the model.
        rule: what is a float tie.
        at_once: rows in the engine at a time.
        checked: called after each row.
    """
    places = asyncio.Semaphore(at_once)

    async def one(given: Given) -> Finding:
        async with places:
            finding = await _check_row(plain, given, facts, rule)
        checked()
        return finding

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(given)) for given in rows]
    return [task.result() for task in tasks]


async def _check_row(plain: Plain, given: Given, facts: ModelFacts, rule: TieRule) -> Finding:
    found = Finding(given.row.custom_id, given.row.line, given.kind, Verdict.IDENTICAL)
    try:
        # As it was asked: nothing is added that the answer could depend on.
        answer = (await _answered(plain, given.row)).body
        parted = differences(given.answer, answer)
        if not parted:
            return found
        if all(difference.choice is None for difference in parted):
            return replace(found, verdict=Verdict.DIFFERENT, difference=parted[0])
    except RowError as error:
        return replace(found, verdict=Verdict.DIFFERENT, note=f"plain decoding refuses the row: {error}")
    try:
        measured = (await _answered(plain, _with_logits(given.row))).body
    except RowError as error:  # beam search takes no `logprobs`, and --max-logprobs may be too low for them
        note = f"the gap is not known: {error}"
        return replace(found, verdict=Verdict.DIFFERENT, difference=parted[0], note=note)
    decode = partial(_decode, facts, given.row.body)
    judged = [_judge(found, each, (given.answer, answer, measured), decode, rule) for each in parted]
    return max(judged, key=lambda each: each.verdict)


def _judge(
    found: Finding,
    difference: Difference,
    bodies: tuple[Mapping[str, Any], ...],
    decode: Callable[[Sequence[int]], str],
    rule: TieRule,
) -> Finding:
    """A finding on one choice: of the job's answer, plain decoding's, and plain decoding's with its logits."""
    found = replace(found, verdict=Verdict.DIFFERENT, difference=difference)
    if difference.choice is None:
        return found
    job, plain, measured = (choice_of(body, difference.choice) for body in bodies)
    note = ""
    if _same_text(measured, job):  # then its tokens are the job's, and what they part from is the first answer
        job, note = plain, "plain decoding itself gave both texts; "
    parting = part(measured, job, decode)
    if found.kind is Kind.SEEDED:
        return replace(found, parting=parting, note=f"{note}sampled: noise decides, not the gap")
    if parting is None:
        least = closest(measured)
        unsure = f"; the closest two logits are {least.gap:.2g} apart, at token {least.token}" if least else ""
        return replace(found, note=f"{note}where the tokens part cannot be seen{unsure}")
    limit = rule.limit(parting.size)
    verdict = Verdict.TIE if parting.gap < limit and not parting.at_least else Verdict.DIFFERENT
    return replace(found, verdict=verdict, parting=parting, limit=limit, note=note.removesuffix("; "))


def _same_text(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return not differences({"choices": [one]}, {"choices": [other]})


async def _answered(plain: Plain, row: Row) -> Answer:
    """Answer a row, on the next engine where one dies.

    Raises:
        RowError: the row is at fault, or there is no answer to be had.
    """
    failed: RowError = RowError("engine_died", "the engine died with it, time and again")
    for _ in range(_TRIES):
        await plain.ready()
        try:
            return await plain.answer(row)
        except TransientError as error:
            failed = error
        except (EngineDead, EngineDown):
            continue
    raise failed


def _with_logits(row: Row) -> Row:
    """The same row, asking for the likeliest tokens of each place, by their ids."""
    if row.url == CHAT_URL:
        more: dict[str, Any] = {"logprobs": True, "top_logprobs": _CANDIDATES}
    else:
        more = {"logprobs": _CANDIDATES}
    return replace(row, body={**row.body, **more, "return_tokens_as_token_ids": True})


def _decode(facts: ModelFacts, body: Mapping[str, Any], ids: Sequence[int]) -> str:
    return facts.decode(ids, body.get("skip_special_tokens") is not False)
