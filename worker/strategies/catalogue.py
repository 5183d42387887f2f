"""Every strategy, with what it needs, and which of them do not go together."""

from typing import Literal, NamedTuple

from worker.strategies.seam import Strategy

Runner = Literal["V1", "V2"]


class Entry(NamedTuple):
    """A strategy as a user is told of it.

    Attributes:
        flag: of `worker run`.
        name: the flag's value.
        what: it does, in a line.
        needs: beside a model.
        lossless: whether texts are those of plain decoding, or of its distribution.
        runners: of vLLM on which it goes: V1 on CPUs, V2 on GPUs.
    """

    flag: str
    name: str
    what: str
    needs: str = "nothing"
    lossless: bool = True
    runners: tuple[Runner, ...] = ("V1", "V2")


_DRAFTER = "a draft model, a process more"
_CHANCES = "--draft-source model or mixed"

ENTRIES: tuple[Entry, ...] = (
    Entry("--mode", "ar", "plain decoding: no drafts"),
    Entry("--mode", "sd", "draft, then verify, all rows at once, in one process: vLLM's own", "a draft model"),
    Entry("--mode", "psd", "two batches: one is drafted for while the other is verified (MineDraft)", _DRAFTER),
    Entry(
        "--mode",
        "pearl",
        "one batch, drafted for while it is verified, as if all its drafts were accepted (PEARL)",
        f"{_DRAFTER}, 2 drafts",
        runners=("V1",),
    ),
    Entry("--mode", "auto", "whichever of these is fastest by measured times, and how many drafts", _DRAFTER),
    Entry("--draft-source", "model", "drafts are the draft model's"),
    Entry("--draft-source", "ngram", "what followed the last words where the row had them before", "text that repeats"),
    Entry("--draft-source", "suffix", "what followed them in the rows of the job that are done", "rows that are alike"),
    Entry("--draft-source", "mixed", "for each row whichever source was right most often"),
    Entry("--draft-length", "fixed", "of each row as many drafts are verified as there are"),
    Entry("--draft-length", "adaptive", "of each row as many as its own acceptance makes worth their time"),
    Entry("--verify", "all", "all drafts are verified"),
    Entry(
        "--verify",
        "tetris",
        "of more drafts, those of all rows that are likeliest to be accepted (TETRIS)",
        f"--extra-drafts 1 or more, {_CHANCES}",
        runners=("V1",),
    ),
    Entry(
        "--verify",
        "confidence",
        "drafts are verified while that raises the tokens expected per time (DSpark)",
        _CHANCES,
        runners=("V1",),
    ),
)


def unfit(strategy: Strategy, runner: Runner) -> str | None:
    """Why a combination does not go, in a line for the user; None: it does.

    Args:
        strategy: what was asked for.
        runner: of vLLM: V1 on CPUs, V2 on GPUs.
    """
    asked = {
        "--mode": strategy.mode,
        "--draft-source": strategy.source,
        "--draft-length": strategy.length,
        "--verify": strategy.admission,
    }
    for entry in ENTRIES:
        if asked[entry.flag] == entry.name and runner not in entry.runners:
            return f"{entry.flag} {entry.name} goes on vLLM's {entry.runners[0]} runner only, that of CPUs"
    if strategy.admission != "all" and strategy.source in ("ngram", "suffix"):
        return (
            f"--verify {strategy.admission} goes by how sure the draft model is, "
            f"and --draft-source {strategy.source} asks none: use model or mixed"
        )
    if strategy.mode == "pearl" and strategy.source != "model":
        return f"--mode pearl drafts ahead with the draft model alone, not with --draft-source {strategy.source}"
    if strategy.admission == "tetris" and strategy.extra < 1:
        return "--verify tetris chooses among more drafts than it verifies: --extra-drafts 1 or more"
    if strategy.extra and strategy.admission != "tetris":
        return "--extra-drafts goes with --verify tetris"
    return None
