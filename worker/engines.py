"""From settings to engines: what `--engine`, `--model` and the rest ask for."""

from collections.abc import Callable

from worker.engine import platform
from worker.engine.fake import FakeEngine, FakePlan
from worker.engine.protocol import Engine
from worker.settings import RunSettings


def engine_factory(settings: RunSettings) -> Callable[[], Engine]:
    """What makes an engine, again after each one's death. May take a minute: the embedded model is built here.

    Raises:
        EngineStartError: the engine's own arguments are wrong.
        ModelError: the embedded model cannot be built.
    """
    max_num_seqs = settings.max_num_seqs or platform.default_max_num_seqs(cpu=platform.is_cpu_build())
    if settings.engine == "fake":
        plan = FakePlan.parse(settings.engine_args)
        return lambda: FakeEngine(plan, settings.served, max_num_seqs)

    # Imported here: vLLM takes seconds to import, which the fake engine and every usage error do without.
    from worker.engine.vllm import VllmEngine, VllmOptions  # noqa: PLC0415
    from worker.models.embedded import embedded_model  # noqa: PLC0415

    options = VllmOptions(
        model=settings.model or str(embedded_model()),
        served_model_name=settings.served,
        mode="sd" if settings.mode == "sd" else "ar",
        draft_model=settings.draft_model,
        tensor_parallel_size=settings.tensor_parallel_size,
        num_speculative_tokens=settings.num_speculative_tokens,
        max_num_seqs=max_num_seqs,
        engine_args=settings.engine_args,
    )
    return lambda: VllmEngine(options)
