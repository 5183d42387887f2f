"""The audit: input files, results files and Redis's keys, held against each other. Knows nothing of the programs."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.storm.oracle import Asked, Oracle, read_input
from redis import Redis

#: Most examples of one kind of finding that are kept.
_EXAMPLES = 5

#: Keys that may be there when every job has ended and every worker is gone.
_KEPT = re.compile(r"minedraft:(jobs|identities|turn|expiring|job:(?P<job>\w+)(:(results|finished|failed))?)")


@dataclass(frozen=True, slots=True)
class Job:
    """A job to audit: its id, and where its rows and its results are."""

    job_id: str
    input: Path
    results: Path


@dataclass
class Audit:
    """What was counted, and every finding as a line."""

    rows: int = 0
    results: int = 0
    errors: int = 0
    refused: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    counters: int = 0
    keys: int = 0
    others: int = 0
    findings: list[str] = field(default_factory=list)
    _said: Counter[str] = field(default_factory=Counter)

    def find(self, counter: str, what: str) -> None:
        """Count a finding under one of the names above; the first few are told."""
        setattr(self, counter, getattr(self, counter) + 1)
        self._said[counter] += 1
        if self._said[counter] <= _EXAMPLES:
            self.findings.append(f"{counter}: {what}")

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not self.findings


def audit(redis: "Redis", jobs: Iterable[Job], oracle: Oracle, failure: str = "fake_failure") -> Audit:
    """Audit jobs that have all ended, when every worker is gone.

    Args:
        redis: a client that decodes responses.
        jobs: every job there should be.
        oracle: what the engine says to a row.
        failure: the code of the errors that the oracle's None stands for.
    """
    made = Audit()
    known = list(jobs)
    for job in known:
        _audit_job(made, redis, job, oracle, failure)
    audit_keys(made, redis, {job.job_id for job in known})
    return made


def _audit_job(made: Audit, redis: "Redis", job: Job, oracle: Oracle, failure: str) -> None:
    asked = list(read_input(job.input))
    results = [json.loads(line) for line in job.results.read_text(encoding="utf-8").split("\n")[:-1]]
    made.rows += len(asked)
    by_name: dict[Any, list[dict[str, Any]]] = {}
    for result in results:
        by_name.setdefault(_name(result), []).append(result)
    recount: Counter[str] = Counter(done=len(results), rows=len(asked))
    for row in asked:
        found = by_name.pop(row.custom_id or row.line, [])
        where = f"job {job.job_id}, line {row.line} ({row.custom_id})"
        if not found:
            made.find("lost", where)
            continue
        if len(found) > 1:
            made.find("doubled", where)
        if wrong := _judge(row, found[0], oracle, failure):
            made.find("wrong", f"{where}: {wrong}")
    for name in by_name:
        made.find("wrong", f"job {job.job_id}: a result for {name!r}, which nobody asked for")
    for result in results:
        _recount(recount, result)
    recount["invalid"] = sum(row.body is None for row in asked)
    made.results += recount["done"] - recount["failed"]
    made.errors += recount["failed"]
    made.refused += recount["invalid"]
    names = [_name(result) for result in results]
    if len(names) == len(asked) and names != [row.custom_id or row.line for row in asked]:
        made.find("wrong", f"job {job.job_id}: the results are not in the order of the input")
    _audit_counters(made, redis, job.job_id, recount)


def _name(result: Mapping[str, Any]) -> Any:
    """What tells a result apart: its custom_id, or the line of a row that has none."""
    return result["custom_id"] or (result["error"] or {}).get("line")


def _judge(row: Asked, result: Mapping[str, Any], oracle: Oracle, failure: str) -> str:
    """What is wrong with the result of a row, if anything."""
    response, error = result["response"], result["error"]
    if (response is None) == (error is None):
        return "it has both or neither of response and error"
    text = oracle(row) if row.body is not None else None
    if error is not None:
        refused = row.body is None
        expected = text is None and (error["code"] == failure) != refused and error["line"] == row.line
        return "" if expected else f"the error {error} was not expected"
    if text is None:
        return "it is answered and should be an error"
    choice = response["body"]["choices"][0]
    said = choice["message"]["content"] if "message" in choice else choice["text"]
    right = response["status_code"] == 200 and said == text
    return "" if right else f"it reads {said!r} and should read {text!r}"


def _recount(recount: Counter[str], result: Mapping[str, Any]) -> None:
    if result["response"] is None:
        recount["failed"] += 1
    else:
        usage = result["response"]["body"]["usage"]
        recount["prompt_tokens"] += usage["prompt_tokens"]
        recount["completion_tokens"] += usage["completion_tokens"]


def _audit_counters(made: Audit, redis: "Redis", job: str, recount: Mapping[str, int]) -> None:
    stored: Any = redis.hgetall(f"minedraft:job:{job}")
    for name in ("rows", "done", "failed", "invalid", "prompt_tokens", "completion_tokens"):
        if int(stored.get(name, -1)) != recount[name]:
            made.find("counters", f"job {job}: {name} is {stored.get(name)}, the results have {recount[name]}")
    if stored.get("state") != "completed":
        made.find("counters", f"job {job} is {stored.get('state')}")
    ended: Any = redis.lrange(f"minedraft:job:{job}:finished", 0, -1)
    if len(ended) != recount["rows"] or len(set(ended)) != len(ended):
        made.find("counters", f"job {job}: {len(ended)} rows have ended, {len(set(ended))} different ones")


def audit_keys(made: Audit, redis: "Redis", jobs: set[str]) -> None:
    """Find every key that is none of what ended jobs keep."""
    for key in sorted(redis.scan_iter(count=1000)):
        allowed = _KEPT.fullmatch(key)
        if allowed is None or (allowed["job"] and allowed["job"] not in jobs):
            made.find("keys", f"{key} ({redis.type(key)}, {redis.ttl(key)} s to live)")
    listed: Any = redis.zrange("minedraft:jobs", 0, -1)
    for job in set(listed) ^ jobs:
        made.find("keys", f"job {job} is {'listed and none of ours' if job in listed else 'not listed'}")
