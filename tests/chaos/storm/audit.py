"""The audit: input files, results files and Redis's keys, held against each other. Knows nothing of the programs."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from chaos.storm.oracle import Asked, Oracle, read_input
from redis import Redis

#: Most examples of one kind of finding that are kept.
_EXAMPLES = 5

#: Keys that may be there when every job has ended and every worker is gone, and those of a job.
_KEPT = {"minedraft:jobs", "minedraft:identities", "minedraft:turn", "minedraft:expiring"}
_OF_JOB = re.compile(r"minedraft:job:(?P<job>\w+)(:(?P<part>\w+))?")


@dataclass(frozen=True, slots=True)
class Job:
    """A job to audit: its id, and where its rows and its results are.

    `how` they were fetched: "input" and "done" are orders of lines, "consume" moved them while the job ran.
    """

    job_id: str
    input: Path
    results: Path
    how: Literal["input", "done", "consume"] = "input"
    cancelled: bool = False

    @property
    def kept(self) -> set[str | None]:
        """Which of its keys may be there; None is the one without a part."""
        of_rows: set[str | None] = set() if self.how == "consume" else {"results", "finished", "failed"}
        return {None, "engines"} | of_rows


@dataclass
class Audit:
    """What was counted, and every finding as a line."""

    rows: int = 0
    results: int = 0
    errors: int = 0
    refused: int = 0
    dropped: int = 0
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
    _audit_keys(made, redis, {job.job_id: job for job in known})
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
        if not found and job.cancelled:
            made.dropped += 1
            continue
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
    ended: Any = redis.lrange(f"minedraft:job:{job.job_id}:finished", 0, -1)
    _audit_order(made, job, asked, [_name(result) for result in results], ended)
    _audit_counters(made, redis, job, recount, ended)


def _audit_order(made: Audit, job: Job, asked: list[Asked], names: list[Any], ended: list[str]) -> None:
    """Find lines in another order than was asked for. (What was consumed has left no order to compare with.)"""
    expected = [row.custom_id or row.line for row in asked]
    if job.how == "done":
        expected = [expected[int(index)] for index in ended if int(index) < len(expected)]
    if job.how == "consume" or Counter(names) - Counter(expected):
        return  # doubled, or nobody asked for them: found already
    there = set(names)
    if names != [name for name in expected if name in there]:
        made.find("wrong", f"job {job.job_id}: the results are not in the order of {job.how}")


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


def _audit_counters(made: Audit, redis: "Redis", job: Job, recount: Mapping[str, int], ended: list[str]) -> None:
    stored: Any = redis.hgetall(f"minedraft:job:{job.job_id}")
    consumed = recount["done"] if job.how == "consume" else 0
    counts = {**recount, "consumed": consumed}
    for name in ("rows", "done", "failed", "invalid", "consumed", "prompt_tokens", "completion_tokens"):
        if int(stored.get(name, -1)) != counts.get(name, 0):
            there = counts.get(name, 0)
            made.find("counters", f"job {job.job_id}: {name} is {stored.get(name)}, the results have {there}")
    if stored.get("state") != ("cancelled" if job.cancelled else "completed"):
        made.find("counters", f"job {job.job_id} is {stored.get('state')}")
    if len(ended) != recount["done"] - consumed or len(set(ended)) != len(ended):
        made.find("counters", f"job {job.job_id}: {len(ended)} rows have ended, {len(set(ended))} different ones")


def _audit_keys(made: Audit, redis: "Redis", jobs: Mapping[str, Job]) -> None:
    """Find every key that is none of what ended jobs keep."""
    for key in sorted(redis.scan_iter(count=1000)):
        found = _OF_JOB.fullmatch(key)
        job = jobs.get(found["job"]) if found else None
        if key not in _KEPT and not (found and job and found["part"] in job.kept):
            made.find("keys", f"{key} ({redis.type(key)}, {redis.ttl(key)} s to live)")
    listed: Any = redis.zrange("minedraft:jobs", 0, -1)
    for job_id in set(listed) ^ set(jobs):
        made.find("keys", f"job {job_id} is {'listed and none of ours' if job_id in listed else 'not listed'}")
