"""Rows to measure with: Spec-Bench's questions by category (`data/NOTICE`), or a file of the user's own."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from producer.intake.rows import Reject, parse_line
from producer.intake.sources import SourceError, open_source
from producer.record.models import CHAT_URL, Row

_SPEC_BENCH = Path(__file__).parent / "data" / "spec_bench.jsonl"
#: Lengths are drawn with it, and with a number for what is drawn: that of the answers does not depend on the prompts'.
_SEED, _ANSWERS, _PROMPTS = 0, 0, 1
#: Tokens that a chat template may add to a question.
_TEMPLATE_TOKENS = 64


class PromptError(Exception):
    """There are no such rows; the message is one line for the user."""


def categories() -> list[str]:
    """Spec-Bench's categories, as `rows` takes them."""
    return list(_questions())


def rows(
    chosen: Sequence[str],
    count: int,
    max_tokens: int | range,
    *,
    greedy: bool = True,
    ignore_eos: bool = True,
    max_prompt_chars: int | range | None = None,
) -> list[Row]:
    """Chat rows of Spec-Bench's questions (their first turn), always the same ones.

    They come from the categories in turns; where a category has no more, it begins anew. A length that is a range is
    drawn for each row, every number of it equally often, and always the same for a row, however many rows there are.

    Args:
        chosen: categories; none are all.
        count: how many rows.
        max_tokens: of each answer, at most; with `ignore_eos` exactly.
        greedy: answer with the likeliest token each time; else sample at temperature 1.
        ignore_eos: go on after the end of the text, so that all answers are equally long.
        max_prompt_chars: the rest of a longer question is cut off: those of `rag` and `summarization` have up to 7,000
            characters, and a tokenizer with a vocabulary of 512 makes six tokens of ten. A shorter one stays as it is.

    Raises:
        PromptError: a category is not there.
    """
    questions = _questions()
    if unknown := [name for name in chosen if name not in questions]:
        raise PromptError(f"Spec-Bench has no category {unknown[0]!r}; it has {', '.join(questions)}")
    pools = {name: questions[name] for name in chosen or questions}
    names = list(pools)
    how = {"temperature": 0 if greedy else 1, "ignore_eos": ignore_eos}
    answers = _drawn(max_tokens, count, _ANSWERS)
    cuts = [None] * count if max_prompt_chars is None else _drawn(max_prompt_chars, count, _PROMPTS)
    found = []
    for index in range(count):
        name = names[index % len(names)]
        pool = pools[name]
        text = pool[index // len(names) % len(pool)][: cuts[index]]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": answers[index],
            **how,
        }
        found.append(Row(index, index + 1, f"{name}-{index}", CHAT_URL, body))
    return found


def check_context(found: Sequence[Row], model: Path, context: int) -> None:
    """Refuse rows of `rows` that a model's context does not hold, before minutes are spent on an engine.

    Args:
        found: the rows.
        model: its folder; one without a file of its tokenizer is not judged.
        context: tokens that a prompt and its answer may have together.

    Raises:
        PromptError: a row is too long.
    """
    file = model / "tokenizer.json"
    if not file.is_file():
        return
    texts = [row.body["messages"][0]["content"] for row in found]
    for row, encoded in zip(found, Tokenizer.from_file(str(file)).encode_batch(texts), strict=True):
        prompt, answer = len(encoded.ids) + _TEMPLATE_TOKENS, row.body["max_tokens"]
        if prompt + answer > context:
            raise PromptError(
                f"row {row.custom_id}: a prompt of {prompt:,} tokens (with the chat template) and an answer of "
                f"{answer:,} are more than a context of {context:,}; --prompt-chars and --tokens make them shorter"
            )


def from_file(path: Path) -> list[Row]:
    """The rows of a file that could be submitted, as `producer submit` reads them.

    Raises:
        PromptError: the file cannot be read, has no rows, or has a line that is none.
    """
    found = []
    try:
        for index, line in enumerate(open_source([str(path)]).lines()):
            row = parse_line(line, index)
            if isinstance(row, Reject):
                raise PromptError(f"{path}, line {row.line}: {row.fault.message}")
            found.append(row)
    except SourceError as error:
        raise PromptError(str(error)) from None
    except OSError as error:
        raise PromptError(f"cannot read {path}: {error.strerror or error}") from None
    if not found:
        raise PromptError(f"{path}: there are no rows in it")
    return found


def _drawn(lengths: int | range, count: int, what: int) -> list[int]:
    """A length for each row."""
    if isinstance(lengths, int):
        return [lengths] * count
    random = np.random.default_rng([_SEED, what])
    drawn: list[int] = random.integers(lengths[0], lengths[-1], endpoint=True, size=count).tolist()
    return drawn


@cache
def _questions() -> dict[str, list[str]]:
    """The first turn of each question, by category."""
    questions: dict[str, list[str]] = {}
    for line in _SPEC_BENCH.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        questions.setdefault(question["category"], []).append(question["turns"][0])
    return questions
