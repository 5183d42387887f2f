"""What a bench has measured of one of its ways."""

from worker.lab.result import Bench, Turn


def turn(bench: Bench, name: str) -> Turn:
    found = bench.find(name)
    assert found is not None
    return found.turns[0]
