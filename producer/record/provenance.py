"""Who answered a job: a note of each worker that had rows of it, what it computes with and what the job cost it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from redis.asyncio import Redis

from producer.record import scripts, wire
from producer.record.keys import key
from producer.record.models import dumps

#: What engines do for all their rows at once, and a job has a share of: fields of `WorkerStats` and of `EngineNote`.
WORK = ("drafted", "accepted", "verify_seconds", "draft_seconds", "hidden_seconds")


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What a worker computes with; "" and 0 for what does not apply.

    Attributes:
        model: the served name, which jobs ask for.
        model_path: a folder, or a name on the Hugging Face Hub.
        revision: which state of the model: the Hub's commit; of a folder `sha256:` and the digest of its config.json
            and of the names and sizes of its weights' files (not of the weights themselves).
        dtype: what weights and logits are computed in, as `float32`.
        tensor_parallel_size: devices that share the model.
        mode: `ar`, `sd`, `psd`, `pearl` or `auto`; `fake`, where no model answers.
        drafter: the draft model, as `model_path`.
        drafter_revision: as `revision`.
        num_speculative_tokens: tokens drafted in a step, at most.
        draft_sample_method: `greedy` or `probabilistic`.
        strategy: what else was chosen of sources, lengths and admission of drafts, in flags of `worker run`.
        lossless: whether answers have the distribution of plain decoding (those to greedy rows its very text).
        versions: of `minedraft-worker`, `vllm` and `torch`, those that are installed.
    """

    model: str
    mode: str
    model_path: str = ""
    revision: str = ""
    dtype: str = ""
    tensor_parallel_size: int = 1
    drafter: str = ""
    drafter_revision: str = ""
    num_speculative_tokens: int = 0
    draft_sample_method: str = ""
    strategy: str = ""
    lossless: bool = True
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobShare:
    """What of a worker's work fell to one job; a row that is retried counts each time.

    Attributes:
        rows: rows of the job that it ended, answered or failed.
        failed: those of them that failed.
        prompt_tokens: of the answered rows.
        completion_tokens: of the answered rows.
        drafted: draft tokens that were verified.
        accepted: those of them that were accepted.
        verify_seconds: time in which the target verified.
        draft_seconds: time in which the drafter drafted.
        hidden_seconds: the part of `draft_seconds` in which a batch was being verified.
        estimated: whether other jobs ran beside it: then the last five are divided by the completion tokens that
            ended meanwhile, which is an estimate. Else they are exact.
    """

    rows: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_seconds: float = 0.0
    draft_seconds: float = 0.0
    hidden_seconds: float = 0.0
    estimated: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineNote(EngineFacts, JobShare):
    """One worker's part in a job. A worker that is started again is another one: what the notes count adds up."""

    worker_id: str


async def note(redis: Redis, worker_id: str, facts: EngineFacts, shares: Mapping[str, JobShare]) -> None:
    """Write what a worker has to say of these jobs, over what it said before; a job that is gone stays gone."""
    argv: list[str | int] = [worker_id]
    for job_id, share in shares.items():
        argv += (job_id, dumps({"worker_id": worker_id, **asdict(facts), **asdict(share)}))
    await scripts.run(redis, "note", *argv)


async def engines(redis: Redis, job_id: str) -> list[EngineNote]:
    """The notes of a job, in the order of worker ids; what is no note is passed over.

    A worker writes within a second of a row's end, and what its engine measured within five more.
    """
    stored = await redis.execute_command("HGETALL", key("engines", job_id))
    found = (wire.read(EngineNote, text) for _, text in sorted(stored.items()))
    return [each for each in found if each is not None]
