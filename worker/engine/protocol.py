"""The seam between the queue and whatever answers rows.

The queue knows this file and nothing of vLLM; an engine knows this file and nothing of queues.
"""

from typing import Protocol

from producer.record.models import Answer, Row, RowFault


class RowError(Exception):
    """The row is at fault: it becomes an error row and is never tried again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.fault = RowFault(code, message)


class TransientError(RowError):
    """The engine failed on the row for a reason that may pass: it is tried again, and is an error row only then."""


class EngineDead(Exception):  # noqa: N818 - a state that callers react to, named as vLLM names it
    """The engine can answer nothing any more; its rows are unfinished and must run again elsewhere."""


class EngineDown(Exception):  # noqa: N818 - a state, too
    """No engine lives at the moment: the row was not begun."""


class EngineStartError(Exception):
    """The engine cannot start and trying again will not help; the message is one line for the user."""


class Engine(Protocol):
    """A model on its devices.

    One instance lives from `start` to `close` or to its death; a new instance replaces a dead one. Every
    method is called from one event loop and must never block it (heavy work goes to other processes or
    threads), because that loop also renews leases.
    """

    @property
    def capacity(self) -> int:
        """How many rows it runs at once (vLLM's `max_num_seqs`); more may be given, they wait inside."""
        ...

    async def start(self) -> None:
        """Load the model and be ready to answer.

        Raises:
            EngineStartError: it cannot start (no such model, refused settings, ...).
            EngineDead: it died while starting; another try may help.
        """
        ...

    async def answer(self, row: Row, job: str = "") -> Answer:
        """Answer one row. Cancelling the call frees what the row holds in the engine.

        Args:
            row: any row.
            job: rows of one job are alike, which an engine may use to be faster, never to answer otherwise; "": not
                known.

        Raises:
            RowError: this row can never be answered; `TransientError`: not now.
            EngineDead: the engine died before the answer was complete.
        """
        ...

    async def wait_dead(self) -> str:
        """Return when the engine has died, with the reason in one line; never returns otherwise."""
        ...

    async def close(self) -> None:
        """End the engine and every process it started. Safe to call twice, on a dead engine too."""
        ...
