"""The method's own model of itself: what two batches gain when V does not depend on what is verified, and t is free.

Drafting for a time t gets a share f(t) = 1 - exp(-alpha t) of all that could be accepted. One batch after the other
takes V + t for it, two overlapped batches max(V, t); each chooses the t that is best for it.
"""

import math


def best_times(alpha_v: float) -> tuple[float, float]:
    """The least (V + t) / f(t) and the least max(V, t) / f(t) over t, both times alpha.

    With x = alpha t: the first is least where exp(x) = 1 + alpha V + x, and is exp(x) there. The second falls until
    t = V and grows from there.

    Args:
        alpha_v: alpha times V, above 0.
    """
    x = math.log1p(alpha_v)
    for _ in range(200):  # x -> log(1 + alpha V + x) contracts by 1 / (1 + alpha V + x); its slope is below 1 for x > 0
        x = math.log1p(alpha_v + x)
    return math.exp(x), alpha_v / -math.expm1(-alpha_v)


def speedup(alpha_v: float) -> float:
    """T_SD / T_PSD: how much faster two batches are, at most 2 (`best_times`)."""
    one, two = best_times(alpha_v)
    return one / two
