"""Which requests take part in a step, so that the two batches stay alike: a pure rule, in tokens of work.

The batch whose turn it is gets verified in this step; the other one is being executed or drafted for. A request joins
the batch in whose turn it reads the end of its prompt, and returns every second step (MineDraft, section "Batch
manager"). The reference never moves a request afterwards; here one waits a turn when its batch has become too large.

**Why alike.** One batch is drafted for while the other is verified, so each of the two steps of a cycle is as long as
the larger batch makes it: with step times proportional to work, a cycle of batches a and b takes 2 max(a, b), which is
a + b + d, where d = |a - b|. Only d can be saved.

**When a move pays.** Work x that goes over from the larger batch makes each later cycle shorter by d - |d - 2x|. The
cost, once, is the half cycle that the request waits: x / 2. Up to x = d / 2 the gain is 2x, in the first cycle already.
A larger x turns the difference round, gains 2 (d - x), and may take a few cycles to pay.

**Why it comes to rest.** Nothing is done about a difference below the largest movable request of the larger batch.
Where moves turned a difference round, what is left is below the request that did so, and that one is now in the batch
that became the larger one: it moves nobody in its own turn. So a disturbance costs at most one turn with moves, the
second one after it at the latest, and leaves no more than one request's work.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

#: Cycles in which a move must pay. Few, as the next request that ends or comes changes the difference anyhow; with 8,
#: every move of less than 32 tokens of work that makes the batches more alike pays.
_CYCLES_TO_PAY = 8


class Load(NamedTuple):
    """A request that may be verified now.

    Attributes:
        work: tokens that it will have verified in each turn (1 + its drafts).
        movable: whether it can change batches. Not while it reads its prompt: it must go on now, and has no batch yet.
            Nor when it can end in its next turn: there is nothing to gain. Neither counts as work to come.
    """

    work: int
    movable: bool


class Joining(NamedTuple):
    """A waiting request that fits.

    Attributes:
        prompt: tokens that it still reads, from the step that admits it.
        work: tokens that it will have verified in each turn afterwards.
    """

    prompt: int
    work: int


class Turn(NamedTuple):
    """What happens to the batches in one step.

    Attributes:
        admit: waiting requests that join the batch whose turn it is, the first ones.
        hold: indices into `ready` of requests that wait for the other batch's turn, ascending.
    """

    admit: int
    hold: tuple[int, ...]


def plan_turn(ready: Sequence[Load], under_way: int, joining: Sequence[Joining], *, together: bool = False) -> Turn:
    """Decide who joins and who changes batches; afterwards the batches differ by one request at most, if they can.

    Unless `together`, something is scheduled whenever a request is ready, or waits while nothing is under way.

    Args:
        ready: requests whose result is in, the oldest first: the batch whose turn it is, and all that read their
            prompt. When nothing is under way these may be all that run: then the plan splits them.
        under_way: tokens a turn of the other batch, whose results are not in; 0 when nothing is under way. Without
            requests that are in `ready` as well, since they read on.
        joining: waiting requests that fit, first come first. Those who are not admitted count for the other batch, so
            it must be possible to admit all of them, in this turn and the next.
        together: make one batch of both, to be drafted for and verified in turn. Nobody goes on while something is
            under way, except who is not movable: readers, and those that may end with their next token.

    Returns:
        The plan. Newcomers join first come first; those who change batches are the newest that fit.
    """
    if together:
        return Turn(0, _movable(ready)) if under_way else Turn(len(joining), ())
    ahead = sum(load.work for load in ready if load.movable) - under_way
    # Newcomers fill the other batch without any loss, so moves only mend what would be left if all of them did.
    # Where some join this batch it is the smaller one, and nobody moves.
    return Turn(_admission(ahead, joining), _moves(ready, ahead - sum(new.work for new in joining)))


def _movable(ready: Sequence[Load]) -> tuple[int, ...]:
    """Indices of all that may wait."""
    return tuple(index for index, load in enumerate(ready) if load.movable)


def _admission(ahead: int, joining: Sequence[Joining]) -> int:
    """How many of the first newcomers join now, when all others join the other batch in the next step.

    Work decides: it counts in all turns to come. Where two plans leave the batches equally alike prompts do, as those
    of one step make it long for both batches: the two steps share them.

    Args:
        ahead: tokens a turn that this batch has more than the other one, before anybody joins.
        joining: the newcomers.
    """
    joined = list(accumulate((new.work for new in joining), initial=0))
    others = joined[-1] - ahead
    turned = bisect_left(joined, others / 2)  # from here on this batch is the larger one

    def unlike(count: int) -> tuple[int, int, int]:
        prompts = sum(new.prompt for new in joining[:count]) - sum(new.prompt for new in joining[count:])
        return abs(2 * joined[count] - others), abs(prompts), -count

    return min(range(max(turned - 1, 0), min(turned, len(joining)) + 1), key=unlike)


def _moves(ready: Sequence[Load], ahead: int) -> tuple[int, ...]:
    """Indices of the requests that change batches, ascending.

    Args:
        ready: the batch whose turn it is.
        ahead: tokens a turn that it has more than the other batch.
    """
    movable = _movable(ready)
    if not movable or ahead < max(ready[index].work for index in movable):
        return ()
    moved: list[int] = []
    stayed: list[int] = []
    for index in reversed(movable):
        twice = 2 * ready[index].work
        if twice <= ahead:
            ahead -= twice
            moved.append(index)
        else:
            stayed.append(index)
    if stayed:
        # Each is above half of the difference: one more turns it round, the smallest does so least.
        last = min(stayed, key=lambda index: ready[index].work)
        if _CYCLES_TO_PAY * 2 * (ahead - ready[last].work) > ready[last].work / 2:
            moved.append(last)
    return tuple(sorted(moved))
