"""Whether samples come from a distribution: two tests, how often they are wrong, and what they find.

Outcomes are counted in cells. Each comparison is made twice, and a sample passes when it passes both:

- Pearson's chi-square test, with the rarest cells counted as one. It finds small deviations, but its p value is that of
  the limit of many samples.
- The total variation distance, which must stay below a bound that holds for any number of samples (Bretagnolle, Huber
  and Carol: `P(TV > t) <= 2^cells exp(-2 n t^2)`). `found_at` says which deviation it finds for certain.

An outcome that cannot be, and is there, fails at once.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Cell = TypeVar("Cell", bound=Hashable)
Numbers = NDArray[np.float64]

#: How often one comparison of samples that are as they should be may fail: one in a million. The full tier makes fewer
#: than 500 of them, so it raises a false alarm at most once in 2,000 runs (Bonferroni).
FALSE_ALARM = 1e-6
#: How often a deviation that is said to be found may be missed.
MISSED = 1e-3
#: Of a cell that counts by itself in the chi-square test, at least so many are expected. With 20 the test's p value
#: is true to a factor of 2 or so down to 1e-5 (measured with 2 million samples).
LEAST_EXPECTED = 20


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a sample fits.

    Attributes:
        samples: how many there are, in the smaller of two samples.
        cells: outcomes that are told apart.
        impossible: samples that should not be there at all.
        chi_square: the statistic.
        freedom: its degrees of freedom.
        p_value: how likely such a statistic or a greater one is.
        distance: total variation, 0 to 1.
        bound: what it stays below, except once in `2 / false_alarm` times.
        false_alarm: how often the two tests together may fail samples that are as they should be.
    """

    samples: int
    cells: int
    impossible: int
    chi_square: float
    freedom: int
    p_value: float
    distance: float
    bound: float
    false_alarm: float

    def __bool__(self) -> bool:
        """Whether it fits."""
        return not self.impossible and self.p_value >= self.false_alarm / 2 and self.distance <= self.bound

    def __str__(self) -> str:
        """What was measured."""
        return (
            f"n {self.samples}, {self.cells} cells, chi2 {self.chi_square:.1f} of {self.freedom}, "
            f"p {self.p_value:.2g}, TV {self.distance:.4f} <= {self.bound:.4f}, impossible {self.impossible}"
        )


def fit(counts: Mapping[Cell, int], expected: Mapping[Cell, float], false_alarm: float = FALSE_ALARM) -> Fit:
    """Compare a sample with a distribution.

    Args:
        counts: how often each outcome came up.
        expected: the probability of each outcome; those that are missing cannot be.
        false_alarm: how often this may fail a sample of that distribution.
    """
    samples = sum(counts.values())
    assert samples, "no samples"
    assert math.isclose(sum(expected.values()), 1, abs_tol=1e-6), "no distribution"
    cells = [cell for cell, probability in expected.items() if probability > 0]
    observed = np.array([counts.get(cell, 0) for cell in cells], float)
    wanted = np.array([expected[cell] for cell in cells]) * samples
    impossible = samples - int(observed.sum())
    statistic, freedom = _chi_square(*_pooled(wanted, observed, wanted))
    distance = float(np.abs(observed - wanted).sum() + impossible) / 2 / samples
    bound = distance_bound(len(cells), samples, false_alarm / 2)
    return Fit(
        samples, len(cells), impossible, statistic, freedom, tail(statistic, freedom), distance, bound, false_alarm
    )


def compare(one: Mapping[Cell, int], other: Mapping[Cell, int], false_alarm: float = FALSE_ALARM) -> Fit:
    """Compare two samples.

    Args:
        one: how often each outcome came up in the first.
        other: and in the second.
        false_alarm: how often this may fail two samples of one distribution.
    """
    cells = sorted({*one, *other}, key=repr)
    first, second = (np.array([counts.get(cell, 0) for cell in cells], float) for counts in (one, other))
    size, size_2 = first.sum(), second.sum()
    assert size, "no samples"
    assert size_2, "no samples"
    together = (first + second) / (size + size_2)
    least = min(size, size_2)
    a, b, share = _pooled(together * least, first, second, together)
    statistic = sum(_chi_square(part, share * part.sum())[0] for part in (a, b))
    freedom = len(share) - 1
    # Each sample keeps its distance to what both come from, with half of the false alarms.
    bound = sum(distance_bound(len(cells), int(n), false_alarm / 4) for n in (size, size_2))
    distance = float(np.abs(first / size - second / size_2).sum()) / 2
    p_value = tail(statistic, freedom)
    return Fit(int(least), len(cells), 0, statistic, freedom, p_value, distance, bound, false_alarm)


def _pooled(expected: Numbers, *rows: Numbers) -> list[Numbers]:
    """The rows with their rare cells counted as one, which takes in the next rarest until it is not rare itself."""
    order = np.argsort(-expected)
    ordered = expected[order]
    alone = int((ordered >= LEAST_EXPECTED).sum())
    while 0 < alone < len(ordered) and ordered[alone:].sum() < LEAST_EXPECTED:
        alone -= 1
    whole = [row[order] for row in rows]
    if alone == len(ordered):
        return whole
    return [np.append(row[:alone], row[alone:].sum()) for row in whole]


def _chi_square(observed: Numbers, expected: Numbers) -> tuple[float, int]:
    """The statistic, and its degrees of freedom."""
    return float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1


def tail(statistic: float, freedom: int) -> float:
    """How likely a chi-square statistic is to be as great or greater."""
    if not freedom:
        return 1.0  # one cell: nothing to tell apart
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def distance_bound(cells: int, samples: int, false_alarm: float) -> float:
    """What the total variation distance of a sample to its own distribution stays below, but for `false_alarm`."""
    return math.sqrt((cells * math.log(2) - math.log(false_alarm)) / (2 * samples))


def found_at(cells: int, samples: int, false_alarm: float = FALSE_ALARM, missed: float = MISSED) -> float:
    """The total variation distance from which on another distribution is found, whatever it is.

    On the outcomes that the other one makes likelier, its sample's share is at most `sqrt(ln(1 / missed) / 2n)` below
    the true one (Hoeffding), and the sample's distance is no less than the difference there.

    Args:
        cells: outcomes that are told apart.
        samples: how many there are.
        false_alarm: as in `fit`.
        missed: how often it may not be found.
    """
    return distance_bound(cells, samples, false_alarm / 2) + math.sqrt(-math.log(missed) / (2 * samples))


def samples_needed(cells: int, distance: float, false_alarm: float = FALSE_ALARM, missed: float = MISSED) -> int:
    """How many samples find every distribution at a total variation distance of `distance` or more."""
    return math.ceil((found_at(cells, 1, false_alarm, missed) / distance) ** 2)


def found_share(
    expected: Mapping[Cell, float],
    other: Mapping[Cell, float],
    samples: int,
    times: int = 1000,
    false_alarm: float = FALSE_ALARM,
) -> float:
    """How often samples of another distribution are found out, both tests together, by trying.

    Args:
        expected: what the samples are compared with.
        other: what they are drawn from, with the same cells.
        samples: in each try.
        times: tries.
        false_alarm: as in `fit`.
    """
    cells = list(expected)
    shares = np.array([other[cell] for cell in cells])
    drawn = np.random.default_rng(0).multinomial(samples, shares / shares.sum(), size=times)
    fits = [bool(fit(dict(zip(cells, map(int, row), strict=True)), expected, false_alarm)) for row in drawn]
    return 1 - sum(fits) / times


def distance(one: Mapping[Cell, float], other: Mapping[Cell, float]) -> float:
    """Total variation of two distributions."""
    cells: Sequence[Cell] = [*{*one, *other}]
    return sum(abs(one.get(cell, 0.0) - other.get(cell, 0.0)) for cell in cells) / 2
