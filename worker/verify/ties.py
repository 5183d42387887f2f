"""How close two logits must be for rounding to decide between them. Pure."""

from dataclasses import dataclass

#: In float32 a logit itself is rounded by 2^-24 of it; what the layers' sums round on the way counts more. This is the
#: limit that this project's exactness tests have.
_FLOAT32 = 1e-4
#: A number x in such a type is rounded by up to this times |x|: half of the step between neighbours.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclass(frozen=True, slots=True)
class TieRule:
    """What is a float tie.

    Attributes:
        dtype: the model's, as `float32`.
        fixed: the user's own limit, in logits; None: the dtype decides.
    """

    dtype: str
    fixed: float | None = None

    def limit(self, size: float) -> float:
        """The gap below which two logits of about `size` are a tie: both may be rounded, each to the other's side."""
        if self.fixed is not None:
            return self.fixed
        return max(_FLOAT32, 2 * _ROUNDING.get(self.dtype, 0.0) * size)

    @property
    def words(self) -> str:
        """The rule, for people."""
        if self.fixed is not None:
            return f"logits closer than {self.fixed:g} (--tie-gap)"
        if self.dtype in _ROUNDING:
            return f"logits closer than what {self.dtype} rounds: {2 * _ROUNDING[self.dtype]:g} of the larger one"
        return f"logits closer than {_FLOAT32:g} ({self.dtype})"
