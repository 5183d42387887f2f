"""What a worker computes with."""

from pathlib import Path

import pytest

from worker.engine.vllm_args import VllmOptions
from worker.facts import fake_facts, revision, vllm_facts


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-1.safetensors").write_bytes(b"12345")
    (tmp_path / "notes.txt").write_text("x")
    return tmp_path


def test_a_folder_has_a_revision_that_changes_with_its_model(model: Path) -> None:
    first = revision(str(model))
    assert first.startswith("sha256:")
    (model / "notes.txt").write_text("y")
    assert revision(str(model)) == first
    (model / "model-1.safetensors").write_bytes(b"123456")
    second = revision(str(model))
    (model / "config.json").write_text('{"a": 1}')
    assert len({first, second, revision(str(model))}) == 3


def test_a_name_on_the_hub_has_none_before_it_is_loaded() -> None:
    assert revision("some-org/some-model") == ""


def test_facts_of_vllm(model: Path) -> None:
    options = VllmOptions(
        model="org/m",
        served_model_name="s",
        mode="psd",
        draft_model=str(model),
        num_speculative_tokens=4,
        tensor_parallel_size=2,
        draft_sample_method="probabilistic",
    )
    facts = vllm_facts(options)
    assert (facts.model, facts.model_path, facts.mode, facts.tensor_parallel_size) == ("s", "org/m", "psd", 2)
    assert (facts.drafter, facts.drafter_revision) == (str(model), revision(str(model)))
    assert (facts.num_speculative_tokens, facts.draft_sample_method, facts.lossless) == (4, "probabilistic", True)
    assert facts.versions["minedraft-worker"]


def test_plain_decoding_has_no_drafter(model: Path) -> None:
    facts = vllm_facts(VllmOptions(model="m", served_model_name="s", draft_model=str(model), num_speculative_tokens=4))
    assert (facts.drafter, facts.drafter_revision, facts.num_speculative_tokens, facts.draft_sample_method) == (
        "",
        "",
        0,
        "",
    )


def test_facts_of_the_fake_engine() -> None:
    facts = fake_facts("s")
    assert (facts.model, facts.mode, facts.model_path) == ("s", "fake", "")
    assert facts.versions.keys() == {"minedraft-worker"}
