"""The file that a plan leaves for a worker: what is written is read, and what is no plan is refused in one line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.plan_file import PlanFileError, PlannedPlacement, read, write

PLACEMENTS = st.one_of(
    st.builds(PlannedPlacement, st.just("ar"), st.integers(1, 16), st.just(0), st.text(st.characters(codec="utf-8"))),
    st.builds(PlannedPlacement, st.sampled_from(["sd", "auto"]), st.integers(1, 16), st.integers(1, 9), st.just("x")),
)


@given(PLACEMENTS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, placement: PlannedPlacement) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    write(path, placement)
    assert read(path) == placement


def test_the_target_is_on_one_device_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('mode = "ar"\n')
    assert read(path) == PlannedPlacement("ar", 1)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "mode is None"),
        ("mode = ", "is not TOML"),
        ('mode = "psd"', "mode is 'psd'"),
        ('mode = "sd"', "mode sd with num_speculative_tokens 0"),
        ('mode = "ar"\nnum_speculative_tokens = 2', "mode ar with num_speculative_tokens 2"),
        ('mode = "ar"\ntensor_parallel_size = 0', "tensor_parallel_size is 0"),
        ('mode = "ar"\ntensor_parallel_size = true', "tensor_parallel_size is True"),
        ('mode = "ar"\ntensor_parallel_size = 1.5', "tensor_parallel_size is 1.5"),
        ('mode = "ar"\nwhy = 3', "why is 3"),
        ('mode = "ar"\ndevices = 3', "'devices' is not one of"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(PlanFileError, match=word) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(PlanFileError, match="is not TOML"):
        read(path)
