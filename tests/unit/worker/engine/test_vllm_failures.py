"""What a start that failed is called."""

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from worker.engine.protocol import EngineDead, EngineStartError
from worker.engine.vllm_failures import start_failure

CORE_FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': %d}"


def test_the_engines_first_error_is_the_reason() -> None:
    failure = start_failure(RuntimeError(CORE_FAILED % 1), "ValueError: no memory")
    assert isinstance(failure, EngineStartError)
    assert str(failure) == "vLLM cannot start: ValueError: no memory"


def test_a_killed_process_is_worth_another_try() -> None:
    failure = start_failure(RuntimeError(CORE_FAILED % -9), None)
    assert isinstance(failure, EngineDead)
    assert "signal 9" in str(failure)


def test_a_process_that_left_neither_a_code_nor_an_error_was_killed() -> None:
    no_code = RuntimeError((CORE_FAILED % -9).partition("{")[0] + "{}")
    assert isinstance(start_failure(no_code, None), EngineDead)
    assert isinstance(start_failure(no_code, "ValueError: no memory"), EngineStartError)


def test_an_error_of_the_front_end_is_one_line() -> None:
    failure = start_failure(OSError("no such\nfile " + "x" * 9999), None)
    assert str(failure).startswith("vLLM cannot start: OSError: no such file")
    assert "\n" not in str(failure)
    assert len(str(failure)) <= 500


def test_of_a_validation_error_only_the_message_is_told() -> None:
    class Config(BaseModel):
        architecture: str

        @field_validator("architecture")
        @classmethod
        def known(cls, value: str) -> str:
            raise ValueError("not supported")

    with pytest.raises(ValidationError) as refused:
        Config(architecture="Foo")
    assert str(start_failure(refused.value, None)) == "vLLM cannot start: not supported"
