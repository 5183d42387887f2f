"""The picture: that it is drawn for all that a bench may hold. How it looks, only an eye can tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from worker.lab.result import Bench, Result, Scenario, Turn

SCENARIO = Scenario("sd(m)", "sd", 4, 2, 1)
FULL = Turn(10.0, 1000, 100.0, 110.0, verify_ms=100.0, draft_ms=90.0, step_ms=191.0)
BENCH = Bench("a pair", False, 80, 64, True, "", (Result(SCENARIO, (FULL, replace(FULL, tokens_per_s=90.0))),), "here")


def draw(bench: Bench, path: Path) -> "np.ndarray":
    from matplotlib.image import imread

    from worker.lab.figure import draw

    draw(bench, path)
    return np.asarray(imread(path))


@pytest.mark.parametrize(
    "results",
    [
        BENCH.results,
        (*BENCH.results, Result(replace(SCENARIO, name="run-batch", mode="run-batch"), (Turn(10.0, 900, 90.0),))),
        (Result(replace(SCENARIO, name="psd(2m)", mode="psd"), (FULL,)),),
        (),
    ],
)
def test_a_picture_of_any_bench(results: tuple[Result, ...], tmp_path: Path) -> None:
    picture = draw(replace(BENCH, results=results), tmp_path / "bench.png")
    assert picture.shape[:2] == (770, 1540)
    assert picture.std() > 0.01


def test_imagined_devices_and_noise_are_marked_across_the_picture(tmp_path: Path) -> None:
    plain = draw(BENCH, tmp_path / "plain.png")
    virtual = draw(replace(BENCH, virtual=True), tmp_path / "virtual.png")
    noisy = draw(replace(BENCH, quiet=False, disturbance="a program"), tmp_path / "noisy.png")
    title, middle = slice(0, 100), slice(350, 550)
    for marked in (virtual, noisy):
        assert (marked[title] != plain[title]).any()
        assert (marked[middle] != plain[middle]).any()
