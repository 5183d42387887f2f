"""The paper's results beside ours."""

import io

from rich.console import Console

from worker.lab.paper import PUBLISHED, published, table
from worker.lab.profiles import names, profile
from worker.lab.result import Bench, Mode, Result, Scenario, Turn


def result(name: str, mode: Mode, in_flight: int, rate: float) -> Result:
    return Result(Scenario(name, mode, in_flight, 2, 5), (Turn(1.0, int(rate), rate),))


def bench(m: int, sd: float, psd: float, ar: float) -> Bench:
    results = (
        result("ar", "ar", 2 * m, ar),
        result("sd(m)", "sd", m, sd),
        result("psd(2m)", "psd", 2 * m, psd),
    )
    return Bench("x", True, 1, 1, True, "", results, "here")


def shown(pair: str) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=140).print(table(pair, [bench(8, 100, 150, 200), bench(16, 100, 160, 120)]))
    return page.getvalue().splitlines()


def test_the_best_of_ours_stands_beside_the_best_of_theirs() -> None:
    lines = shown("qwen3-32b+1.7b@h100")
    ours, theirs = (next(line for line in lines if name in line) for name in ("best of ours", "best of the paper's"))
    assert "+60.0%" in ours
    assert "-37.5%" in ours
    assert "+75.7%" in theirs
    assert "-39.5%" in theirs


def test_it_is_marked_as_virtual_and_says_what_beats_it() -> None:
    lines = shown("qwen3-32b+1.7b")
    assert "VIRTUAL" in lines[0]
    assert "-25.0%" in next(line for line in lines if "m = 8" in line)


def test_a_pair_that_the_paper_lacks() -> None:
    assert published("flat:25,10") is None
    assert not [line for line in shown("flat:25,10") if "paper's" in line]


def test_every_pair_of_the_paper_has_a_profile() -> None:
    for pair in PUBLISHED:
        assert profile(pair).name == pair
        assert any(name.startswith(pair) for name in names())
