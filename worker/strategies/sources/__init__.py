"""Where drafts are from: the draft model, the row's own text, rows of its job that are done, or the best of these."""

from collections.abc import Callable

from worker.strategies.seam import Source, Strategy
from worker.strategies.sources.drafts import Drafts
from worker.strategies.sources.mixed import Mixed
from worker.strategies.sources.ngram import NGram
from worker.strategies.sources.suffix import Suffix

__all__ = ["JOB", "Drafts", "make"]

#: Where the engine's process finds a row's job: the name in the request's `sampling_params.extra_args`.
JOB = "minedraft_job"

_SOURCES: dict[str, Callable[[], Source]] = {"ngram": NGram, "suffix": Suffix}
_NAMES = {"model": (), "ngram": ("ngram",), "suffix": ("suffix",), "mixed": ("suffix", "ngram")}


def make(strategy: Strategy) -> Drafts:
    """The drafts that an engine with this strategy finds itself.

    Raises:
        KeyError: there is no such source.
    """
    sources: dict[str, Source] = {name: _SOURCES[name]() for name in _NAMES[strategy.source]}
    return Drafts(sources, Mixed() if strategy.source == "mixed" else None)
