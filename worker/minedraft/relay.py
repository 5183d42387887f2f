"""How all verifiers get the same drafts, whatever becomes of the drafter.

The first verifier receives them and hands them on; when the drafter is lost it hands on rows of `NO_DRAFT`, and no
rank verifies any. So one rank alone decides whether there are drafts, and the others never wait for the drafter.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from worker.minedraft.link import LinkError, VerifierEnd, meet

#: Stands in rows of drafts where there is none: they never came, or were not admitted. What follows it counts nowhere.
NO_DRAFT = -1


class Relay:
    """From the first verifier to the others, through host memory.

    Args:
        group: a gloo process group of the verifiers.
        drafts: drafted tokens a request and step.
        deadline: how long a message may take.
    """

    def __init__(self, group: Any, drafts: int, deadline: timedelta) -> None:
        self._group, self._drafts, self._deadline = group, drafts, deadline

    @classmethod
    def connect(cls, address: str, rank: int, verifiers: int, drafts: int, deadline: timedelta) -> "Relay | None":
        """Meet the other verifiers; None when there are none.

        Args:
            address: see `link.meet`.
            rank: of this verifier.
            verifiers: how many there are.
            drafts: drafted tokens a request and step.
            deadline: how long a message of the drafter may take; a relayed one may take twice as long.

        Raises:
            LinkError: they did not all come in time.
        """
        if verifiers == 1:
            return None
        # The others may already wait while the first one still waits for the drafter, for all of its own deadline.
        return cls(meet(address, "relay", rank, verifiers, 2 * deadline), drafts, 2 * deadline)

    def give(self, message: Tensor) -> None:
        """Hand drafts, [requests, drafts] int32, or proposals on; verifier 0 only.

        Raises:
            LinkError: another verifier is gone.
        """
        self._broadcast(message)

    def take(self, requests: int) -> Tensor:
        """The next message of verifier 0: [requests, drafts] int32; the others only.

        Raises:
            LinkError: it did not come in time.
        """
        message = torch.empty((requests, self._drafts), dtype=torch.int32)
        self._broadcast(message)
        return message

    def take_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """The next message of verifier 0: [requests, drafts, vocabulary] float32; the others only.

        Raises:
            LinkError: it did not come in time.
        """
        message = torch.empty((requests, self._drafts, vocabulary), dtype=torch.float32)
        self._broadcast(message)
        return message

    def _broadcast(self, message: Tensor) -> None:
        try:
            self._group.broadcast(message, 0).wait(self._deadline)
        except RuntimeError as error:
            raise LinkError(f"the verifiers do not hear each other: {error}") from error


class FirstVerifier:
    """Verifier 0's end of a link, which outlives the drafter.

    Args:
        link: to the drafter; None: there is none.
        relay: to the other verifiers, if there are any.
        drafts: drafted tokens a request and step.
        on_lost: is told, once, why no drafts will come any more.
    """

    def __init__(
        self, link: VerifierEnd | None, relay: Relay | None, drafts: int, on_lost: Callable[[LinkError], None]
    ) -> None:
        self._link, self._relay, self._drafts, self._on_lost = link, relay, drafts, on_lost

    def send_sampled(self, sampled: Tensor) -> None:
        """Send [requests, drafts + 1] ids to the drafter, if there is one."""
        with self._outlived():
            if self._link is not None:
                self._link.send_sampled(sampled)

    def expect_drafts(self, requests: int) -> None:
        """So many rows will be received."""
        with self._outlived():
            if self._link is not None:
                self._link.expect_drafts(requests)

    def recv_drafts(self, requests: int) -> Tensor:
        """[requests, drafts] int32, the drafter's, or `NO_DRAFT` everywhere.

        Raises:
            LinkError: another verifier is gone.
        """
        drafts = torch.full((requests, self._drafts), NO_DRAFT, dtype=torch.int32)
        with self._outlived():
            if self._link is not None:
                drafts = self._link.recv_drafts(requests)
        if self._relay is not None:
            self._relay.give(drafts)
        return drafts

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        """So many proposals will be received after those drafts."""
        with self._outlived():
            if self._link is not None:
                self._link.expect_proposals(requests, vocabulary)

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """[requests, drafts, vocabulary] float32, the drafter's, or NaN everywhere.

        Raises:
            LinkError: another verifier is gone.
        """
        proposals = torch.full((requests, self._drafts, vocabulary), torch.nan)
        with self._outlived():
            if self._link is not None:
                proposals = self._link.recv_proposals(requests, vocabulary)
        if self._relay is not None:
            self._relay.give(proposals)
        return proposals

    def close(self) -> None:
        """Give up the link to the drafter."""
        if self._link is not None:
            self._link.close()
            self._link = None

    @contextmanager
    def _outlived(self) -> Iterator[None]:
        """What the drafter cannot do any more inside the block is left undone, from then on."""
        try:
            yield
        except LinkError as error:
            self.close()
            self._on_lost(error)


class OtherVerifier:
    """What the other verifiers have in place of a link.

    Args:
        relay: from the first one.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def expect_drafts(self, requests: int) -> None:
        """Nothing: a broadcast needs no preparation."""

    def recv_drafts(self, requests: int) -> Tensor:
        """What the first verifier got: [requests, drafts] int32.

        Raises:
            LinkError: it is gone.
        """
        return self._relay.take(requests)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        """Nothing: a broadcast needs no preparation."""

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """What the first verifier got: [requests, drafts, vocabulary] float32.

        Raises:
            LinkError: it is gone.
        """
        return self._relay.take_proposals(requests, vocabulary)

    def send_sampled(self, sampled: Tensor) -> None:
        """Nothing: the first one does."""

    def close(self) -> None:
        """Nothing."""
