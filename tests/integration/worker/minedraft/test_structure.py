"""Rows with a grammar: drafts are checked against it, every answer is valid, and greedy text is plain decoding's."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.worker.engine.real_engine import chat, completion
from integration.worker.minedraft.both_engines import (
    Rings,
    ask,
    choices,
    counted,
    differences,
    ranks,
    text,
)
from integration.worker.minedraft.cases import (
    GREEDY,
    HITS,
    ONE_CANDIDATE,
    ONE_MORE,
    PREEMPTED,
    STOPS,
    Case,
    chunked,
    english,
    rows,
)

from producer.record.models import Answer, Row
from worker.engine.vllm import VllmEngine
from worker.lab.tiny import build_tokenizer
from worker.minedraft import names
from worker.minedraft.measures import summary
from worker.minedraft.stages import ENGINE, Stage, StageReader, ring_path

#: `cases.py` has some of these for the fast tier.
pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

Answers = dict[str, list[Answer]]

#: The models' words are random, so a text ends only where its grammar says so.
SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "number": {"enum": [1, 22, 333]},
        "note": {"type": "string", "pattern": "^[a-zA-Z ,.:;()-]{0,60}$"},
        "word": {"type": "string", "pattern": "^[a-z]{5,9}$"},
    },
    "required": ["ok", "number", "note", "word"],
    "additionalProperties": False,
}
SHAPE = {"type": "json_schema", "json_schema": {"name": "shape", "schema": SCHEMA}}
#: Without what xgrammar takes for characters and Python does not (halves of surrogate pairs), and without "<" and ">":
#: to a grammar, special tokens are their names.
REGEX = "[ -/:;=?-~]{20,30}[0-9]{3}"
WORDS = ["yes", "no", "neither the one nor the other"]
LIST = """
root ::= "[" item ("," item){4} "]"
item ::= [a-zA-Z ]{3,12} | "(" [a-zA-Z .:;-]{4,20} ")"
"""
ITEM = r"(?:[a-zA-Z ]{3,12}|\([a-zA-Z .:;-]{4,20}\))"
#: What ends by itself.
STRUCTURES: dict[str, dict[str, Any]] = {
    "json_schema": {"json": SCHEMA},
    "regex": {"regex": REGEX},
    "choice": {"choice": WORDS},
    "grammar": {"grammar": LIST},
}
#: Tokens in which JSON can be said, a few, so that an object that may say anything ends.
FEW = [1, *(build_tokenizer().tokens.index(token) for token in '{}":,1Ġ')]


def under(structure: dict[str, Any], count: int = 6, **body: Any) -> list[Row]:
    """Greedy rows with a grammar, which end where it does."""
    return rows(count, **{"ignore_eos": False, "max_tokens": 120, "structured_outputs": structure, **body})


def shaped(count: int = 6, **body: Any) -> list[Row]:
    """Greedy chats that are answered by the schema."""
    asked = {"response_format": SHAPE, "temperature": 0, "max_tokens": 200, **body}
    return [chat(english(i * 41, 40), **asked) for i in range(count)]


CASES = {
    "json_schema": Case(shaped()),
    "regex": Case(under(STRUCTURES["regex"])),
    "choice": Case(under(STRUCTURES["choice"])),
    "grammar": Case(under(STRUCTURES["grammar"])),
    "json_object": Case(
        [chat(english(i * 41, 40), response_format={"type": "json_object"}, **GREEDY, max_tokens=60) for i in range(6)]
    ),
    "beyond the grammar's end": Case(under(STRUCTURES["regex"], ignore_eos=True)),
    "beside rows without one": Case(
        [row for pair in zip(under(STRUCTURES["regex"]), rows(), strict=True) for row in pair]
    ),
    "prompts in chunks": Case(chunked(8, structured_outputs={"regex": "[^0-9]*"})),
    "full context, preempted": Case(under({"regex": "[^0-9]*"}, 8, max_tokens=None, ignore_eos=True), PREEMPTED),
    "whole prompts in the cache": Case(
        [completion(ONE_MORE, structured_outputs=STRUCTURES["regex"], **GREEDY)] * 12, HITS
    ),
    "three answers a row": Case(under(STRUCTURES["regex"], n=3, **ONE_CANDIDATE)),
    "min_tokens": Case(under({"regex": "[^0-9]*"}, stop_token_ids=STOPS, min_tokens=20)),
    "stop strings": Case(under({"regex": "[^0-9]*"}, stop=["er", "a", "o"])),
    "one token": Case(under(STRUCTURES["regex"], max_tokens=1)),
    "two tokens": Case(under(STRUCTURES["regex"], max_tokens=2)),
    "frequency_penalty": Case(under({"regex": "[^0-9]*"}, frequency_penalty=1.5, max_tokens=60)),
    "seeded": Case(
        [
            row
            for structure in STRUCTURES.values()
            for seed in range(3)
            for row in under(structure, 1, temperature=1, seed=seed, top_k=50)
        ]
    ),
    "one row": Case(under({"regex": "[^0-9]{100,120}"}, 1)),
}


def _is_shape(answer: str) -> bool:
    said = json.loads(answer)
    assert list(said) == ["ok", "number", "note", "word"]
    return (
        isinstance(said["ok"], bool)
        and said["number"] in (1, 22, 333)
        and re.fullmatch("[a-zA-Z ,.:;()-]{0,60}", said["note"]) is not None
        and re.fullmatch("[a-z]{5,9}", said["word"]) is not None
    )


def _matches(regex: str) -> Callable[[str], bool]:
    return lambda answer: re.fullmatch(regex, answer) is not None


#: Of the cases that end by themselves: whether an answer is what was asked for.
VALID: dict[str, Callable[[str], bool]] = {
    "json_schema": _is_shape,
    "regex": _matches(REGEX),
    "choice": lambda answer: answer in WORDS,
    "grammar": _matches(rf"\[{ITEM}(,{ITEM}){{4}}\]"),
}


@pytest.mark.parametrize("name", CASES)
async def test_greedy_answers_are_those_of_plain_decoding(
    engine: VllmEngine, plain: Answers, rings: Rings, name: str
) -> None:
    before = counted(CASES[name].counter)
    assert differences(plain[name], await ask(engine, CASES[name].rows)) == []
    assert counted(CASES[name].counter) > before
    assert rings.read()[0]["accepted"].sum() > 0 or name == "one token"


async def test_the_cases_are_what_they_are_called(plain: Answers) -> None:
    """Without this, a case could stop meaning anything as soon as the models' texts change."""
    for name, valid in VALID.items():
        assert all(valid(text(choice)) for choice in choices(plain[name])), name
        assert {choice["finish_reason"] for choice in choices(plain[name])} == {"stop"}
    for name in ("min_tokens", "stop strings"):
        assert "stop" in {choice["finish_reason"] for choice in choices(plain[name])}
    assert any(not VALID["regex"](text(choice)) for choice in choices(plain["beyond the grammar's end"]))
    free = choices(plain["beside rows without one"])[1::2]
    assert any(not VALID["regex"](text(choice)) for choice in free)


def sampled(name: str, count: int, **body: Any) -> list[Row]:
    """So many rows of a kind that ends by itself."""
    asked = {"structured_outputs": STRUCTURES[name], "max_tokens": 200, "temperature": 1, **body}
    return [completion(english(i * 61, 60), **{"seed": i, **asked}) for i in range(count)]


@pytest.mark.parametrize("how", [{}, {"seed": None, "n": 2}, {"temperature": 2, "top_k": 20}], ids=str)
async def test_sampled_answers_are_valid(engine: VllmEngine, how: dict[str, Any]) -> None:
    kinds = {name: sampled(name, 4, **how) for name in STRUCTURES}
    answers = await asyncio.gather(*(ask(engine, asked) for asked in kinds.values()))
    assert [invalid(name, of_kind) for name, of_kind in zip(kinds, answers, strict=True)] == [[]] * len(kinds)


def invalid(name: str, answers: Sequence[Answer]) -> list[str]:
    """The texts that are not what was asked for."""
    return [text(choice) for choice in choices(answers) if not VALID[name](text(choice))]


async def test_an_object_of_any_shape_is_valid_when_it_ends(engine: VllmEngine) -> None:
    loose = {"allowed_token_ids": FEW, "frequency_penalty": 2, "temperature": 2, "max_tokens": 400}
    asked = [chat(english(i * 41, 40), response_format={"type": "json_object"}, **loose) for i in range(8)]
    ended = [text(choice) for choice in choices(await ask(engine, asked)) if choice["finish_reason"] == "stop"]
    assert len(ended) > len(asked) / 2
    assert all(isinstance(json.loads(answer), dict) for answer in ended)


async def test_a_call_is_with_the_ranks_while_the_one_before_it_runs(engine: VllmEngine, rings: Rings) -> None:
    """vLLM defers the masks, and nothing else."""
    engines = StageReader(ring_path(Path(engine._folder.name), ENGINE))  # type: ignore[union-attr]
    engines.read()
    await ask(engine, under({"regex": "[^0-9]{150,200}"}, 8, max_tokens=200))
    verifier, _ = rings.read()
    ends = ((record["call"], record["end"][Stage.SCHEDULE]) for record in engines.read())
    scheduled = {call: end for call, end in ends if end}
    early = [scheduled[call["call"]] < before["end"][Stage.SAMPLE] for before, call in pairwise(verifier)]
    waits = verifier["begin"][:, Stage.SAMPLE] - verifier["end"][:, Stage.FORWARD]
    print(f"{np.mean(early):.2f} of {len(early)} calls; {np.median(waits) / 1e6:.2f} ms from pass to sample")
    assert np.mean(early) > 0.6


async def test_aborted_rows_change_nothing_for_the_others(engine: VllmEngine, plain: Answers) -> None:
    cases = ["json_schema", "regex", "grammar", "prompts in chunks"]
    asked = [row for name in cases for row in CASES[name].rows]
    expected = [answer for name in cases for answer in plain[name]]
    calls = [asyncio.create_task(ask(engine, [row])) for row in asked]
    for call in calls[::4]:
        await asyncio.sleep(0.05)
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    left = {index: answers[0] for index, answers in enumerate(ended) if isinstance(answers, list)}
    assert differences([expected[index] for index in left], list(left.values())) == []
    assert len(left) < len(asked)


async def test_of_500_rows_500_are_valid(engine: VllmEngine, rings: Rings) -> None:
    accepted = {}
    for name in STRUCTURES:
        assert invalid(name, await ask(engine, sampled(name, 125))) == []
        accepted[name] = summary(*rings.read()).acceptance
    print("accepted: " + ", ".join(f"{name} {share:.2f}" for name, share in accepted.items()))
    assert min(accepted.values()) > 0


async def test_without_the_drafter_the_same_is_answered(engine: VllmEngine, plain: Answers) -> None:
    cases = ["json_schema", "regex", "grammar", "full context, preempted"]
    asked = [row for name in cases for row in CASES[name].rows]
    answers = asyncio.create_task(ask(engine, asked))
    await asyncio.sleep(0.3)
    ranks()[names.DRAFTER].kill()
    assert differences([answer for name in cases for answer in plain[name]], await answers) == []
