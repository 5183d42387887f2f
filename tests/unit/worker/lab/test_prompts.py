from collections import Counter
from pathlib import Path

import pytest

from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row
from worker.lab.prompts import PromptError, categories, check_context, from_file, rows
from worker.lab.tiny import build_tiny_model


def text(row: Row) -> str:
    return str(row.body["messages"][0]["content"])


def test_all_categories_are_there() -> None:
    assert categories()[:2] == ["writing", "roleplay"]
    assert {"translation", "summarization", "qa", "math_reasoning", "rag"} < set(categories())
    assert len(categories()) == 13


def test_rows_come_evenly_from_the_categories_and_are_always_the_same() -> None:
    found = rows(["qa", "writing", "rag"], 9, 64)
    assert [row.custom_id for row in found[:4]] == ["qa-0", "writing-1", "rag-2", "qa-3"]
    assert Counter(row.custom_id.split("-")[0] for row in found) == {"qa": 3, "writing": 3, "rag": 3}
    assert len({text(row) for row in found}) == 9
    assert found == rows(["qa", "writing", "rag"], 9, 64)
    assert [(row.index, row.line, row.url) for row in found] == [(i, i + 1, CHAT_URL) for i in range(9)]


def test_none_are_all() -> None:
    assert [row.custom_id for row in rows([], 13, 1)] == [f"{name}-{i}" for i, name in enumerate(categories())]


def test_a_category_begins_anew() -> None:
    found = rows(["writing"], 12, 1)
    assert [text(row) for row in found[10:]] == [text(row) for row in found[:2]]
    assert len({row.custom_id for row in found}) == 12


def test_the_body() -> None:
    greedy, sampled = rows(["qa"], 1, 64)[0].body, rows(["qa"], 1, 64, greedy=False, ignore_eos=False)[0].body
    assert (greedy["max_tokens"], greedy["temperature"], greedy["ignore_eos"]) == (64, 0, True)
    assert (sampled["temperature"], sampled["ignore_eos"]) == (1, False)


def test_long_prompts_are_cut() -> None:
    whole, cut = rows(["rag"], 5, 1), rows(["rag"], 5, 1, max_prompt_chars=800)
    assert min(len(text(row)) for row in whole) > 2000
    assert [text(row)[:800] for row in whole] == [text(row) for row in cut]


def test_lengths_from_a_range_are_even_and_always_the_same() -> None:
    found = rows([], 5000, range(4, 513))
    tokens = [row.body["max_tokens"] for row in found]
    assert (min(tokens), max(tokens)) == (4, 512)
    assert sum(tokens) / 5000 == pytest.approx(258, abs=10)
    assert sum(count < 131 for count in tokens) / 5000 == pytest.approx(1 / 4, abs=0.03)
    assert [row.body["max_tokens"] for row in rows([], 77, range(4, 513))] == tokens[:77]  # of more rows, the first


def test_each_prompt_is_cut_to_its_own_length() -> None:
    whole, cut = rows(["rag"], 60, 1), rows(["rag"], 60, 1, max_prompt_chars=range(40, 1201))
    lengths = [len(text(row)) for row in cut]
    assert all(text(one).startswith(text(other)) for one, other in zip(whole, cut, strict=True))
    assert 40 <= min(lengths) < 150
    assert 1100 < max(lengths) <= 1200
    assert len(set(lengths)) > 50


def test_the_answers_do_not_depend_on_the_prompts() -> None:
    one, other = rows([], 50, range(4, 513)), rows([], 50, range(4, 513), max_prompt_chars=range(4, 513))
    tokens = [row.body["max_tokens"] for row in one]
    assert tokens == [row.body["max_tokens"] for row in other]
    cuts = [len(text(row)) for row in rows(["rag"], 50, 1, max_prompt_chars=range(4, 513))]
    assert cuts != tokens


def test_a_range_of_one_is_that_one() -> None:
    assert rows([], 9, range(5, 6), max_prompt_chars=range(30, 31)) == rows([], 9, 5, max_prompt_chars=30)


def test_rows_that_a_context_does_not_hold_are_refused(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny")
    check_context(rows([], 200, range(4, 513), max_prompt_chars=range(40, 1201)), model, 2048)
    with pytest.raises(PromptError, match=r"^row rag-0: a prompt of 1,\d\d\d tokens .* an answer of 512 are more than"):
        check_context(rows(["rag"], 3, 512, max_prompt_chars=3000), model, 2048)
    check_context(rows(["rag"], 3, 512, max_prompt_chars=3000), model, 4096)
    check_context(rows(["rag"], 3, 512), tmp_path, 100)  # whose tokenizer nobody knows


def test_a_category_that_is_not_there() -> None:
    with pytest.raises(PromptError, match=r"^Spec-Bench has no category 'poems'; it has writing, roleplay, .*rag$"):
        rows(["qa", "poems"], 1, 1)


def test_a_file_as_it_could_be_submitted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "Hi", "max_tokens": 3}\n\n{"custom_id": "b", "messages": [{"role": "user"}]}\n')
    first, second = from_file(path)
    assert first == Row(0, 1, "row-1", COMPLETIONS_URL, {"prompt": "Hi", "max_tokens": 3})
    assert (second.index, second.line, second.custom_id, second.url) == (1, 3, "b", CHAT_URL)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": "Hi"}\nnonsense\n', r"rows\.jsonl, line 2: the line is not JSON"),
        ("\n", r"rows\.jsonl: there are no rows in it$"),
        (None, r"rows\.jsonl: there is no such file$"),
    ],
)
def test_a_file_without_rows(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PromptError, match=message):
        from_file(path)
