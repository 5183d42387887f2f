"""What the model of streams and communicators knows (`tests/message_order.py`)."""

import torch
from message_order import Communicator, Orders, Recording, Stream, Wire


def two_ranks() -> tuple[Recording, list[Communicator], list[list[Stream]]]:
    """Ranks on one communicator, with two streams each."""
    recording = Recording()
    wire = Wire(recording, "wire", 2)
    ranks = range(2)
    streams = [[Stream(recording, rank, name) for name in ("main", "side")] for rank in ranks]
    return recording, [Communicator(wire, rank) for rank in ranks], streams


def test_a_send_ends_when_it_is_received() -> None:
    recording, (source, to), ((main, _), (other, _)) = two_ranks()
    source.send(torch.zeros(2), 1, main)
    main.launch("next")
    other.launch("busy")
    to.recv(torch.zeros(2), 0, other)
    found = Orders(recording)
    assert found.stuck() == []
    assert found.can_precede((1, "busy"), (0, "next"))
    assert not found.can_precede((0, "next"), (1, "receive wire 1"))


def test_a_communicator_does_one_thing_after_another() -> None:
    recording, (source, to), ((main, side), (other, another)) = two_ranks()
    source.send(torch.zeros(2), 1, main)
    source.broadcast(torch.zeros(3), 0, side)
    to.broadcast(torch.zeros(3), 0, other)
    to.recv(torch.zeros(2), 0, another)
    (stuck,) = Orders(recording).stuck()
    assert stuck == {
        (0, "main"): "send wire 1",
        (0, "side"): "send wire 1",
        (1, "main"): "receive wire 1",
        (1, "side"): "receive wire 1",
    }


def test_messages_of_two_shapes_do_not_meet() -> None:
    recording, (source, to), ((main, _), (other, _)) = two_ranks()
    source.send(torch.zeros(2), 1, main)
    to.recv(torch.zeros(2), 0, other)
    assert Orders(recording).stuck() == []
    source.send(torch.zeros(2), 1, main)
    to.recv(torch.zeros(3), 0, other)
    assert len(Orders(recording).stuck()) == 1
