"""From settings to engines: what `--engine`, `--model` and the rest ask for."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from producer.record.provenance import EngineFacts
from worker import facts
from worker.engine import platform
from worker.engine.fake import FakeEngine, FakePlan
from worker.engine.placement import parse_devices
from worker.engine.protocol import Engine
from worker.engine.vllm_args import VllmOptions
from worker.resolve import drafted, engine_mode, strategy
from worker.settings import RunSettings


@dataclass(slots=True)
class Prepared:
    """What makes an engine, again after each one's death, and what is known of those that it has made."""

    make: Callable[[], Engine]
    facts: EngineFacts

    def started(self, dtype: str, revision: str) -> None:
        """An engine has started: it computes in `dtype`; `revision` is the Hub's name for the model's state, or ""."""
        self.facts = replace(self.facts, dtype=dtype, revision=revision or self.facts.revision)


def engine_factory(settings: RunSettings) -> Callable[[], Engine]:
    """As `prepare`, for who does not ask what the engines compute with."""
    return prepare(settings).make


def prepare(settings: RunSettings) -> Prepared:
    """Ready to make engines. May take a minute: the embedded model is built here.

    Raises:
        EngineStartError: the engine's own arguments are wrong.
        ModelError: the embedded model cannot be built.
    """
    if settings.engine == "fake":
        plan = FakePlan.parse(settings.engine_args)
        rows = _max_num_seqs(settings)
        return Prepared(lambda: FakeEngine(plan, settings.served, rows), facts.fake_facts(settings.served))

    # Imported here: vLLM takes seconds to import, which the fake engine and every usage error do without.
    from worker.engine.stage_metrics import StageMetrics  # noqa: PLC0415
    from worker.engine.vllm import VllmEngine  # noqa: PLC0415

    options = vllm_options(settings)
    stages = StageMetrics() if options.mode == "psd" else None
    prepared = Prepared(lambda: VllmEngine(options, stages, prepared.started), facts.vllm_facts(options))
    return prepared


def vllm_options(settings: RunSettings) -> VllmOptions:
    """What vLLM is told. May take a minute: the embedded model is built here.

    Raises:
        ModelError: the embedded model cannot be built.
    """
    target, drafter = _models(settings)
    return VllmOptions(
        model=target,
        served_model_name=settings.served,
        mode=engine_mode(settings),
        draft_model=drafter,
        tensor_parallel_size=settings.tensor_parallel_size,
        num_speculative_tokens=drafted(settings),
        draft_sample_method=settings.draft_sample_method,
        max_num_seqs=_max_num_seqs(settings),
        verifier_cpus=parse_devices(settings.verifier_cpus) if settings.verifier_cpus else (),
        drafter_cpus=parse_devices(settings.drafter_cpus) if settings.drafter_cpus else (),
        kv_cache_gib=settings.kv_cache_gib,
        drafter_kv_cache_gib=settings.drafter_kv_cache_gib,
        drafter_gpu_memory_utilization=settings.drafter_gpu_memory_utilization,
        link=settings.link,
        engine_args=settings.engine_args,
        strategy=strategy(settings),
    )


def _max_num_seqs(settings: RunSettings) -> int:
    return settings.max_num_seqs or platform.default_max_num_seqs(cpu=platform.is_cpu_build())


def _models(settings: RunSettings) -> tuple[str, str | None]:
    """The target and the draft model; the embedded one has a drafter of its own."""
    from worker.models.embedded import embedded_drafter, embedded_model  # noqa: PLC0415

    if settings.model is not None:
        return settings.model, settings.draft_model
    target = str(embedded_model())
    if settings.draft_model is None and settings.mode != "ar":
        return target, str(embedded_drafter())
    return target, settings.draft_model
