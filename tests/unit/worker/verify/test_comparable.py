"""Which rows plain decoding must answer with the same text."""

from typing import Any

import pytest

from worker.verify.comparable import Kind, kind_of


@pytest.mark.parametrize(
    ("body", "default", "kind"),
    [
        ({"temperature": 0}, 1.0, Kind.GREEDY),
        ({"temperature": 1e-6}, 1.0, Kind.GREEDY),
        ({"temperature": 0, "seed": 1}, 1.0, Kind.GREEDY),
        ({"temperature": 1e-5}, 1.0, Kind.FREE),
        ({"temperature": 0.7, "seed": 0}, 1.0, Kind.SEEDED),
        ({"temperature": 0.7, "seed": None}, 1.0, Kind.FREE),
        ({"temperature": 0.7, "seed": -1}, 1.0, Kind.FREE),  # vLLM's other word for null
        ({"temperature": 0.7, "seed": -2}, 1.0, Kind.SEEDED),
        ({}, 1.0, Kind.FREE),
        ({}, 0.0, Kind.GREEDY),
        ({"temperature": None}, 0.0, Kind.GREEDY),
        ({"temperature": 1}, 0.0, Kind.FREE),
        ({"seed": 5}, 0.6, Kind.SEEDED),
        ({"temperature": 0.7, "use_beam_search": True}, 1.0, Kind.BEAM),
        ({"use_beam_search": True}, 0.0, Kind.BEAM),
        ({"temperature": 0.7, "use_beam_search": False}, 1.0, Kind.FREE),
        ({"temperature": 0, "use_beam_search": None}, 1.0, Kind.GREEDY),
    ],
)
def test_temperature_and_seed_decide_and_the_model_s_own_default(
    body: dict[str, Any], default: float, kind: Kind
) -> None:
    assert kind_of(body, default) is kind
