"""The explorer of orders finds what it is there to find."""

from interleavings import Done, Interleavings, Issued, Meet, Operation, Receive, Relay, Send, Transport


def test_a_circle_of_waits_is_stuck_at_once() -> None:
    waiting: list[list[Operation]] = [[Receive(1, 1), Send(1, 1)], [Receive(0, 1), Send(1, 0)]]
    assert Interleavings(waiting, Transport.BUFFERED).stuck() == [(0, 0)]


def test_only_one_of_two_orders_need_be_stuck() -> None:
    """Rank 1 must not wait for rank 2 before it has taken the message that rank 2 waits to be rid of."""
    programs: list[list[Operation]] = [[Receive(1, 1)], [Send(1, 0), Meet(1)], [Meet(1)]]
    assert Interleavings(programs, Transport.ONE_COMMUNICATOR).stuck() == []
    programs = [[Meet(1), Receive(1, 1)], [Send(1, 0), Meet(1)], []]
    assert Interleavings(programs, Transport.ONE_COMMUNICATOR).stuck() == [(0, 0, 0)]
    assert Interleavings(programs, Transport.BUFFERED).stuck() == []


def test_a_relayed_message_is_taken_by_all_together() -> None:
    """Rank 1 comes for it only when rank 0 has had it, and sent something on."""
    programs: list[list[Operation]] = [
        [Receive(2, 1), Send(1, 1)],
        [Receive(0, 1), Receive(2, 1)],
        [Relay(1, (0, 1))],
    ]
    assert Interleavings(programs, Transport.BUFFERED).stuck() == []
    assert Interleavings(programs, Transport.BROADCASTS).stuck() == [(0, 0, 0)]


def test_messages_pile_up_and_are_left() -> None:
    orders = Interleavings([[Send(call, 1) for call in (1, 2, 3)], [Receive(0, 1)]], Transport.BUFFERED)
    assert orders.stuck() == []
    assert (orders.most_under_way, orders.unread()) == (3, 2)


def test_a_call_is_made_when_the_lead_has_done_what_it_waits_for() -> None:
    lead: list[Operation] = [Receive(1, 1), Done(1)]
    for last, stuck in ((Issued(3, 1), [(0, 2)]), (Issued(3, 0), [])):
        drafter: list[Operation] = [Issued(1), Issued(2), last, Send(1, 0)]
        assert Interleavings([lead, drafter], Transport.BUFFERED).stuck() == stuck
