"""What the paper measured (MineDraft, arXiv 2603.18016, main results), to print beside what is found here.

Four GPUs for SD and five for PSD, temperature 1, up to 1,000 prompts of ShareGPT, LMSYS Arena and Spec-Bench, 256
tokens each; m = 8 to 64, k = 1 to 5, the best over k. SD has m rows in flight, PSD 2m. End-to-end latency falls by
about what throughput rises: it is the time in which all rows are done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from worker.lab.report import ratio
from worker.lab.result import Bench


@dataclass(frozen=True, slots=True)
class Published:
    """A pair's best results against SD.

    Attributes:
        throughput: gain of tokens/s, as a share.
        latency: change of the end-to-end latency, as a share.
    """

    throughput: float
    latency: float


PUBLISHED = {
    "qwen3-32b+0.6b": Published(0.703, -0.379),
    "qwen3-32b+1.7b": Published(0.757, -0.395),
    "qwen3-32b+4b": Published(0.751, -0.389),
    "llama3.3-70b-awq+8b": Published(0.371, -0.206),
}


def published(profile: str) -> Published | None:
    """The paper's results for a profile's pair; None where it has none."""
    return PUBLISHED.get(profile.partition("@")[0])


def table(profile: str, benches: Sequence[Bench]) -> Table:
    """Ours beside theirs: a row for each m, and the best of them beside the paper's best.

    Args:
        profile: of the imagined devices.
        benches: one for each m, with `sd(m)` and `psd(2m)`.
    """
    made = Table(
        title=f"{'' if all(bench.quiet for bench in benches) else 'NO RESULT, the machine was not quiet: '}"
        f"VIRTUAL devices: {profile}: psd(2m) on N + 1 against sd(m) on N, as the paper compares",
        caption="whole runs, each at its own best k; the time is that in which all rows are done",
        title_justify="left",
        caption_justify="left",
    )
    rivals = [name for name in ("ar", "sd(m)", "sd(2m)", "sd(all)") if all(bench.find(name) for bench in benches)]
    for column in ("", "k of sd", "k of psd", "tokens/s", "time", f"tokens/s against the best of {', '.join(rivals)}"):
        made.add_column(column, justify="left" if not column else "right")
    gains = []
    for bench in benches:
        sd, psd = bench.find("sd(m)"), bench.find("psd(2m)")
        assert sd is not None, "the comparison needs sd(m)"
        assert psd is not None, "the comparison needs psd(2m)"
        gain = ratio(psd, sd, "tokens_per_s")
        assert gain is not None, "every turn has tokens/s"
        gains.append(gain.median)
        rates = [found.median("tokens_per_s") or 0.0 for name in rivals if (found := bench.find(name))]
        made.add_row(
            f"m = {sd.scenario.in_flight}",
            str(sd.scenario.drafts),
            str(psd.scenario.drafts),
            *_shares(gain.median),
            f"{(psd.median('tokens_per_s') or 0) / max(rates) - 1:+.1%}",
        )
    made.add_section()
    made.add_row("best of ours", "", "", *_shares(max(gains)), "")
    if theirs := published(profile):
        made.add_row("best of the paper's", "", "", f"{theirs.throughput:+.1%}", f"{theirs.latency:+.1%}", "")
    return made


def _shares(gain: float) -> tuple[str, str]:
    return f"{gain - 1:+.1%}", f"{1 / gain - 1:+.1%}"
