"""What a worker's /metrics page says about its two batches, in two lines for people."""

from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Measured:
    """A two-batch engine with one draft a step, from its start on, prompts included.

    Attributes:
        verify_ms: V, the mean time of a verify pass.
        draft_ms: t, the mean time to draft for a batch.
        hidden: the hidden share, from 0 to 1.
        acceptance: accepted over verified drafts, from 0 to 1.
    """

    verify_ms: float
    draft_ms: float
    hidden: float
    acceptance: float


def measured(page: str) -> Measured | None:
    """Read a /metrics page; None when no drafts have been verified."""
    sums: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name.removeprefix("minedraft_")] += sample.value
    if not sums["drafted_tokens_total"]:
        return None
    verify, draft = sums["verify_seconds_sum"], sums["draft_seconds_sum"]
    return Measured(
        verify_ms=1000 * verify / sums["verify_seconds_count"],
        draft_ms=1000 * draft / sums["draft_seconds_count"],
        hidden=sums["hidden_seconds_total"] / min(verify, draft),
        acceptance=sums["accepted_tokens_total"] / sums["drafted_tokens_total"],
    )


def in_words(run: Measured) -> list[str]:
    """The numbers, and what follows from them for one draft a step.

    Plain decoding gives all 2m rows a token in a pass over 2m tokens. A verify pass is over 2m tokens, too (m rows with
    two tokens each), and gives m rows 1 + acceptance tokens: never more than plain decoding, however well t hides.
    """
    return [
        f"two batches: {run.acceptance:.0%} of the drafts accepted, V = {run.verify_ms:.0f} ms, "
        f"t = {run.draft_ms:.0f} ms (means), {run.hidden:.0%} of the draft time hidden",
        "with this pair plain decoding is faster: in a step of this V it gives every row 1 token, two batches give "
        f"every second row {1 + run.acceptance:.2f}; they win with a drafter so cheap that a row gets more than 2 "
        f"(here a single draft takes {run.draft_ms / run.verify_ms:.2f} V)",
    ]
