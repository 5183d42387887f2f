"""`worker verify` with a model: what two batches answered is what plain decoding says, until somebody tampers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from shell import Shell, shell_in

from producer.record.keys import key
from producer.server.embedded import EmbeddedRedis
from worker.lab.tiny import build_tiny_model

pytestmark = pytest.mark.cores  # it computes on all cores

ROWS: list[dict[str, Any]] = [
    *({"custom_id": f"chat{n}", "messages": [{"role": "user", "content": f"Say {n}."}]} for n in range(6)),
    *({"custom_id": f"text{n}", "prompt": f"Say {n}"} for n in range(6)),
    *({"custom_id": f"ids{n}", "prompt": f"Tell {n}", "return_token_ids": True} for n in range(2)),
    *({"custom_id": f"echo{n}", "prompt": f"Echo {n}", "echo": True, "logprobs": 1} for n in range(2)),
    *({"custom_id": f"penalty{n}", "prompt": f"Say {n}", "repetition_penalty": 1.5} for n in range(2)),
    *({"custom_id": f"seed{n}", "prompt": f"Say {n}", "temperature": 0.8, "seed": n, "n": 2} for n in range(3)),
    {"custom_id": "free", "prompt": "Say", "temperature": 0.8},
    {"custom_id": "default", "prompt": "Say"},
]


def line(row: dict[str, Any]) -> str:
    greedy = {} if row["custom_id"] == "default" else {"temperature": 0}
    return json.dumps({**greedy, "max_tokens": 24, "ignore_eos": True, **row}) + "\n"


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str, tuple[str, ...]]]:
    """A shell, a job that is done, and the flags of a worker that serves its model."""
    folder = tmp_path_factory.mktemp("verify")
    target, draft = (build_tiny_model(folder / f"tiny{seed}", seed=seed) for seed in range(2))
    flags = ("--model", str(target), "--served-model-name", "tiny", "--engine-args=--max-model-len 512")
    with shell_in(folder) as shell:
        (folder / "rows.jsonl").write_text("".join(map(line, ROWS)))
        worker = shell.worker("--mode", "psd", "--draft-model", str(draft), *flags).ready(240)
        job = shell.submit("rows.jsonl")["job_id"]
        shell.producer("watch", job)
        worker.terminate(60)
        yield shell, job, flags


def verify(shell: Shell, *arguments: str, code: int) -> dict[str, Any]:
    ended = shell.run("worker", "verify", *arguments, "--input", "rows.jsonl", "--json", seconds=240)
    assert ended.returncode == code, f"{ended.stdout}\n{ended.stderr}"
    assert "Traceback" not in ended.stderr
    return json.loads(ended.stdout)


def test_a_job_of_two_batches_is_verified_row_by_row(answered: tuple[Shell, str, tuple[str, ...]]) -> None:
    shell, job, flags = answered
    path = shell.folder / "answers.jsonl"
    shell.producer("results", job, "-o", path)
    found = verify(shell, "--results", str(path), *flags, code=0)
    assert found["apart"] == []
    assert found["dtype"] == "float32"
    assert (found["rows"]["checked"], found["rows"]["not_comparable"]) == (len(ROWS) - 2, 2)


def tampered(redis: Redis, job: str, name: str) -> None:
    """Put another word where the answer of a row has its middle."""
    index = next(at for at, row in enumerate(ROWS) if row["custom_id"] == name)
    result = json.loads(redis.hget(key("results", job), str(index)) or "")
    choice = result["response"]["body"]["choices"][0]
    holder, field = (choice["message"], "content") if "message" in choice else (choice, "text")
    text = holder[field]
    holder[field] = f"{text[: len(text) // 2]}###{text[len(text) // 2 :]}"
    if ids := choice.get("token_ids"):
        ids[7] = (ids[7] + 1) % 512
    redis.hset(key("results", job), str(index), json.dumps(result))


def test_what_somebody_tampers_with_is_found_and_measured(
    answered: tuple[Shell, str, tuple[str, ...]],
) -> None:
    shell, job, flags = answered
    names = {"chat3", "text2", "ids1", "seed1"}
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url, decode_responses=True) as redis:
        for name in names:
            tampered(redis, job, name)
    found = verify(shell, job, *flags, code=1)
    apart = {one["custom_id"]: one for one in found["apart"]}
    assert apart.keys() == names
    assert all(one["verdict"] == "different" for one in apart.values())
    assert apart["ids1"]["parting"]["token"] == 7
    for name in ("chat3", "text2"):
        assert 0 < apart[name]["parting"]["token"] < 24
        assert apart[name]["parting"]["gap"] > apart[name]["limit"] == 1e-4
    assert "noise" in apart["seed1"]["note"]
