"""A side that fails says why, in one line."""

from contextlib import closing
from pathlib import Path

import pytest

from worker.engine.vllm_args import VllmOptions
from worker.lab.result import Scenario
from worker.lab.side_common import Told
from worker.lab.sides import Setup, Side, SideError


def setup(tmp_path: Path, program: str) -> Setup:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "x"}\n')
    options = VllmOptions(model=str(tmp_path / "nowhere"), served_model_name="target")
    return Setup(Scenario("ar", "ar", 1, 0, 1), Told(program, options, rows, "", False), {})


def test_an_engine_that_cannot_start(tmp_path: Path) -> None:
    with closing(Side(setup(tmp_path, "engine"), tmp_path / "log")) as side, pytest.raises(SideError) as failed:
        side.ready()
    assert str(failed.value) == f"ar failed: model not found: there is no folder {tmp_path / 'nowhere'}"


def test_a_side_that_is_gone(tmp_path: Path) -> None:
    side = Side(setup(tmp_path, "engine"), tmp_path / "log")
    side.close()
    with pytest.raises(SideError, match="ar failed"):
        side.turn()
