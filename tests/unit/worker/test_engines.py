"""From settings to engines."""

from typing import Any

import pytest

from worker.engine.fake import FakeEngine
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.engines import engine_factory, prepare
from worker.settings import RunSettings


class NoMetrics:
    """In place of metrics, which a process can have once."""


@pytest.fixture(autouse=True)
def _no_models_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.models.embedded.embedded_model", lambda: "embedded target")
    monkeypatch.setattr("worker.models.embedded.embedded_drafter", lambda: "embedded drafter")
    monkeypatch.setattr("worker.engine.stage_metrics.StageMetrics", NoMetrics)


def made(**settings: Any) -> VllmEngine:
    engine = engine_factory(RunSettings(**settings))()
    assert isinstance(engine, VllmEngine)
    return engine


def options(**settings: Any) -> VllmOptions:
    return made(**settings)._options


@pytest.mark.parametrize(
    ("settings", "models"),
    [
        ({}, ("embedded target", "embedded drafter")),
        ({"mode": "sd"}, ("embedded target", "embedded drafter")),
        ({"mode": "ar"}, ("embedded target", None)),
        ({"draft_model": "d"}, ("embedded target", "d")),
        ({"model": "m", "draft_model": "d"}, ("m", "d")),
        ({"model": "m"}, ("m", None)),  # another model's drafter cannot be guessed
    ],
)
def test_the_embedded_model_has_a_drafter_of_its_own(settings: dict[str, Any], models: tuple[str, str | None]) -> None:
    made_of = options(**settings)
    assert (made_of.model, made_of.draft_model) == models


def test_cores_and_memory_are_passed_on() -> None:
    made_of = options(verifier_cpus="0,2-3", drafter_cpus="1", kv_cache_gib=2, drafter_kv_cache_gib=0.5)
    assert made_of.kv_cache_gib == 2
    assert (made_of.verifier_cpus, made_of.drafter_cpus, made_of.drafter_kv_cache_gib) == ((0, 2, 3), (1,), 0.5)
    assert (options().verifier_cpus, options().drafter_cpus) == ((), ())


def test_what_is_of_gpus_is_passed_on() -> None:
    made_of = options(link="host", drafter_gpu_memory_utilization=0.5)
    assert (made_of.link, made_of.drafter_gpu_memory_utilization) == ("host", 0.5)
    assert (options().link, options().drafter_gpu_memory_utilization) == (None, None)


def test_only_two_batches_have_stages_to_measure() -> None:
    assert isinstance(made()._stages, NoMetrics)
    assert made(mode="sd")._stages is None


def test_engines_of_one_worker_measure_together() -> None:
    make = engine_factory(RunSettings())
    first, second = make(), make()
    assert first is not second
    assert first._stages is second._stages  # type: ignore[attr-defined]


def test_the_fake_engine_needs_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.models.embedded.embedded_model", lambda: pytest.fail("built for nothing"))
    engine = engine_factory(RunSettings(engine="fake", max_num_seqs=3))()
    assert isinstance(engine, FakeEngine)
    assert engine.capacity == 3


def test_what_an_engine_computes_with_is_known_once_it_has_started() -> None:
    prepared = prepare(RunSettings(model="m", mode="ar"))
    assert (prepared.facts.model_path, prepared.facts.dtype) == ("m", "")
    prepared.make()._on_start("float32", "c0ffee")  # type: ignore[attr-defined]
    assert (prepared.facts.dtype, prepared.facts.revision) == ("float32", "c0ffee")
