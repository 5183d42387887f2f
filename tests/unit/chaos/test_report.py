"""What was not seen, or not done, is no success."""

from collections import Counter
from dataclasses import replace

import pytest
from chaos.storm.audit import Audit
from chaos.storm.measure import Measures
from chaos.storm.report import broken_promises, is_clean, too_few
from chaos.storm.run import Outcome


def _outcome(**measured: object) -> Outcome:
    return Outcome(Audit(), Measures(**measured), 1.0)  # type: ignore[arg-type]


def test_promises_that_were_kept() -> None:
    kept = _outcome(reclaimed=[40.0, 12.0], reclaimed_calm=[12.0], again=[1.0], kills_in_calm=1, returns=1)
    assert broken_promises(kept) == []
    assert is_clean(kept)


@pytest.mark.parametrize(
    "measured",
    [
        {"reclaimed_calm": [15.1], "kills_in_calm": 1},
        {"again": [5.1], "returns": 1},
        {"never": ["a 3"]},
        {"kills_in_calm": 1},
        {"returns": 1},
    ],
)
def test_promises_that_were_broken(measured: dict[str, object]) -> None:
    broken = _outcome(**measured)
    assert len(broken_promises(broken)) == 1
    assert not is_clean(broken)


def test_a_storm_that_was_not_as_hard_as_asked() -> None:
    storm = replace(_outcome(), done=Counter({"fire": 10, "flood": 9}), least={"fire": 10, "flood": 9}, least_in_all=19)
    assert is_clean(storm)
    for asked in ({"least": {"flood": 10}}, {"least": {"hail": 1}}, {"least_in_all": 20}):
        weak = replace(storm, **asked)
        assert len(too_few(weak)) == 1
        assert "too few faults" in too_few(weak)[0]
        assert not is_clean(weak)
