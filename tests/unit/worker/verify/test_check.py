"""Rows are answered again, by an engine that does as it is told, and judged."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from producer.record.models import CHAT_URL, COMPLETIONS_URL, Answer, Row
from worker.engine.protocol import EngineDead, EngineDown, RowError, TransientError
from worker.verify.check import Finding, Verdict, check
from worker.verify.comparable import Kind
from worker.verify.given import Given
from worker.verify.model import ModelFacts
from worker.verify.ties import TieRule

LETTERS = "abcdefgh"
FLOAT32 = TieRule("float32")


def decode(ids: Sequence[int], skip_special_tokens: bool) -> str:
    return "".join(LETTERS[token] for token in ids)


FACTS = ModelFacts("m", "float32", 1.0, decode)


def body(*texts: str, logits: Sequence[dict[int, float]] = (), prompt_tokens: int = 1) -> dict[str, Any]:
    named = [{f"token_id:{token}": logit for token, logit in step.items()} for step in logits]
    logprobs = {
        "tokens": [next(iter(step)) for step in named],
        "token_logprobs": [next(iter(step.values())) for step in named],
        "top_logprobs": named,
    }
    return {
        "choices": [
            {"index": index, "text": text, "finish_reason": "length", "logprobs": logprobs if logits else None}
            for index, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": len(texts[0]) if texts else 0},
    }


class Engine:
    """Answers what it is told to: the first time each row, and then the same with logits."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Row] = []

    async def ready(self) -> None:
        return

    async def answer(self, row: Row) -> Answer:
        self.asked.append(row)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return Answer(said, 0, 0)


def row(**more: Any) -> Row:
    return Row(0, 1, "r", COMPLETIONS_URL, {"prompt": "x", "temperature": 0, **more})


async def found(engine: Engine, job: dict[str, Any], *, kind: Kind = Kind.GREEDY, rule: TieRule = FLOAT32) -> Finding:
    (finding,) = await check(engine, [Given(row(), kind, job)], FACTS, rule, at_once=1)
    return finding


async def test_the_same_answer_is_identical_and_nothing_was_added_to_the_row() -> None:
    engine = Engine(body("abc"))
    finding = await found(engine, body("abc"))
    assert finding.verdict is Verdict.IDENTICAL
    assert engine.asked == [row()]


@pytest.mark.parametrize(
    ("gap", "rule", "verdict"),
    [
        (0.00005, FLOAT32, Verdict.TIE),
        (0.0002, FLOAT32, Verdict.DIFFERENT),
        (0.02, TieRule("bfloat16"), Verdict.TIE),
        (0.05, TieRule("bfloat16"), Verdict.DIFFERENT),
        (0.05, TieRule("bfloat16", 0.1), Verdict.TIE),
        (0.0, TieRule("float32", 0.0), Verdict.DIFFERENT),
    ],
)
async def test_the_gap_where_they_part_decides(gap: float, rule: TieRule, verdict: Verdict) -> None:
    logits = [{0: 9.0, 5: 1.0}, {1: 4.0, 2: 4.0 - gap}]
    finding = await found(Engine(body("ab"), body("ab", logits=logits)), body("ac"), rule=rule)
    assert finding.verdict is verdict
    assert finding.parting is not None
    assert (finding.parting.token, finding.parting.gap) == (1, pytest.approx(gap))


async def test_a_token_that_is_no_candidate_is_no_tie_however_close_the_last_one_is() -> None:
    logits = [{0: 4.0, 5: 4.0}]
    finding = await found(Engine(body("a"), body("a", logits=logits)), body("c"))
    assert finding.verdict is Verdict.DIFFERENT
    assert finding.parting is not None
    assert finding.parting.at_least


async def test_logits_are_asked_for_by_id_and_only_of_what_differs() -> None:
    engine = Engine(body("a"), body("a", logits=[{0: 4.0, 1: 3.0}]))
    await found(engine, body("b"))
    assert engine.asked[1].body == {**row().body, "logprobs": 5, "return_tokens_as_token_ids": True}


async def test_a_chat_is_asked_in_its_own_words() -> None:
    chat = Row(0, 1, "r", CHAT_URL, {"messages": [{}]})
    engine = Engine(body("a"), body("a", logits=[{0: 4.0, 1: 3.0}]))
    await check(engine, [Given(chat, Kind.GREEDY, body("b"))], FACTS, FLOAT32, at_once=1)
    assert engine.asked[1].body == {
        **chat.body,
        "logprobs": True,
        "top_logprobs": 5,
        "return_tokens_as_token_ids": True,
    }


async def test_a_seeded_row_that_differs_is_different_however_close_it_was() -> None:
    engine = Engine(body("a"), body("a", logits=[{0: 4.0, 1: 4.0}]))
    finding = await found(engine, body("b"), kind=Kind.SEEDED)
    assert (finding.verdict, finding.limit) == (Verdict.DIFFERENT, None)
    assert "noise" in finding.note


async def test_the_worst_choice_is_the_row_s() -> None:
    logits = [{0: 4.0, 1: 4.0, 2: 1.0}]
    finding = await found(Engine(body("a", "a"), body("a", "a", logits=logits)), body("b", "c"))
    assert finding.verdict is Verdict.DIFFERENT
    assert finding.difference is not None
    assert finding.difference.choice == 1


async def test_plain_decoding_that_says_two_things_is_measured_where_these_part() -> None:
    first, second = body("ab"), body("ac", logits=[{0: 9.0, 5: 1.0}, {2: 4.0, 1: 3.99999}])
    finding = await found(Engine(first, second), body("ac"))
    assert finding.verdict is Verdict.TIE
    assert "plain decoding itself gave both" in finding.note


async def test_what_cannot_be_measured_is_different_and_says_how_unsure_plain_decoding_was() -> None:
    logits = [{0: 9.0, 5: 8.5}, {1: 4.0, 2: 3.0}]
    job = body("ab")
    job["choices"][0]["finish_reason"] = "stop"
    finding = await found(Engine(body("ab"), body("ab", logits=logits)), job)
    assert finding.verdict is Verdict.DIFFERENT
    assert "0.5 apart, at token 0" in finding.note


async def test_another_prompt_is_different_without_asking_twice() -> None:
    engine = Engine(body("a", prompt_tokens=2))
    finding = await found(engine, body("a"))
    assert finding.verdict is Verdict.DIFFERENT
    assert len(engine.asked) == 1


async def test_a_row_that_plain_decoding_refuses_is_different_with_the_reason() -> None:
    finding = await found(Engine(RowError("x", "too long")), body("a"))
    assert finding.verdict is Verdict.DIFFERENT
    assert "refuses the row: too long" in finding.note


@pytest.mark.parametrize("kind", [Kind.GREEDY, Kind.BEAM, Kind.SEEDED])
async def test_where_the_gap_cannot_be_asked_for_the_difference_is_kept(kind: Kind) -> None:
    refused = RowError("unsupported_parameter", "beam search does not heed logprobs")
    finding = await found(Engine(body("ab"), refused), body("ac"), kind=kind)
    assert (finding.verdict, finding.parting, finding.limit) == (Verdict.DIFFERENT, None, None)
    assert finding.difference is not None
    assert (finding.difference.job, finding.difference.plain) == ("ac", "ab")
    assert finding.note == "the gap is not known: beam search does not heed logprobs"


async def test_an_engine_s_death_is_outlived() -> None:
    finding = await found(Engine(EngineDead("x"), EngineDown("x"), body("a")), body("a"))
    assert finding.verdict is Verdict.IDENTICAL
    finding = await found(Engine(*[EngineDead("x")] * 3), body("a"))
    assert "time and again" in finding.note
    finding = await found(Engine(TransientError("x", "hiccup"), body("a")), body("a"))
    assert finding.verdict is Verdict.IDENTICAL


class Crowd(Engine):
    """Counts the rows that are in it at once."""

    most = inside = 0

    async def answer(self, row: Row) -> Answer:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.001 * (row.index % 3))
        self.inside -= 1
        return Answer(body("a"), 0, 0)


async def test_so_many_rows_are_in_the_engine_and_findings_stay_in_order() -> None:
    rows = [Given(Row(n, n + 1, f"r{n}", COMPLETIONS_URL, {}), Kind.GREEDY, body("a")) for n in range(20)]
    engine, done = Crowd(), []
    count: Callable[[], object] = lambda: done.append(1)  # noqa: E731
    findings = await check(engine, rows, FACTS, FLOAT32, at_once=4, checked=count)
    assert [finding.custom_id for finding in findings] == [f"r{n}" for n in range(20)]
    assert (engine.most, len(done)) == (4, 20)
