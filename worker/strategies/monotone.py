"""Numbers that ought to grow and were measured."""

import numpy as np
from numpy.typing import NDArray


def grown(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """[values] the numbers that grow and differ least from these, in weighted squares (pool adjacent violators).

    Args:
        values: [values] as measured.
        weights: [values] how much each counts, more than 0.
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, mass, size = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, heavy, many = pools.pop()
            mean = (before * heavy + mean * mass) / (heavy + mass)
            mass, size = heavy + mass, many + size
        pools.append((mean, mass, size))
    return np.repeat([mean for mean, _, _ in pools], [size for _, _, size in pools])
