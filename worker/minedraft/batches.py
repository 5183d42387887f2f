"""Which requests take part in a step, so that the two batches stay balanced: a pure rule, in numbers of requests.

The batch whose turn it is gets verified in this step; the other one is being drafted. A request joins the batch in
whose turn it reads the end of its prompt, and returns every second step (MineDraft, section "Batch manager"). The
reference never moves a request afterwards; here one waits a step when its batch has become too large.
"""

from typing import NamedTuple


class Turn(NamedTuple):
    """What happens to the batches in one step.

    Attributes:
        admit: waiting requests that join the batch whose turn it is.
        hold: requests of that batch that wait one step, and so join the other batch.
    """

    admit: int
    hold: int


def plan_turn(mine: int, other: int, waiting: int, room: int) -> Turn:
    """Decide who joins and who changes batches; afterwards the batches differ by one request at most, if they can.

    Args:
        mine: running requests of the batch whose turn it is, and those still reading their prompt.
        other: running requests of the batch that is being drafted.
        waiting: requests that are not running yet.
        room: how many more may run.
    """
    joining = max(min(waiting, room), 0)
    half = (mine + other + joining + 1) // 2
    admit = min(max(half - mine, 0), joining)
    # Whoever waits loses half a cycle, so nobody does while newcomers can fill the other batch in the next step.
    hold = 0 if joining else max(mine - other, 0) // 2
    return Turn(admit, hold)
