import numpy as np
import pytest
import torch

from worker.minedraft import packets


def test_a_packet_says_what_was_sampled() -> None:
    sampled = torch.tensor([[11, 12, 13, 14], [21, 99, 99, 99], [7, 7, 7, 7]])
    num_sampled, num_rejected = torch.tensor([4, 1, 0]), torch.tensor([0, 3, 0])
    packet = packets.pack(sampled, num_sampled, num_rejected, drafts=3)
    assert packet.dtype == torch.int32
    assert packet.shape == (3, packets.width(3))
    ids, valid, rejected = packets.unpack(packet)
    assert ids.dtype == torch.int64
    assert ids.tolist() == sampled.tolist()
    assert valid.tolist() == [4, 1, 0]
    assert rejected.tolist() == [0, 3, 0]


def test_rows_without_drafts_are_narrow() -> None:
    """vLLM's plain sampler, which a call without drafts takes, gives one id a row."""
    packet = packets.pack(torch.tensor([[5], [6]]), torch.tensor([1, 1]), torch.tensor([0, 0]), drafts=3)
    ids, valid, _ = packets.unpack(packet)
    assert ids.tolist() == [[5, 0, 0, 0], [6, 0, 0, 0]]
    assert valid.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("num_sampled", "num_drafts", "wanted"),
    [(4, 3, 3), (1, 3, 0), (0, 0, 0), (1, 0, 0), (0, 3, 0)],
)
def test_how_many_drafts_were_accepted(num_sampled: int, num_drafts: int, wanted: int) -> None:
    found = packets.accepted(torch.tensor([num_sampled]), torch.tensor([num_drafts]))
    assert found.tolist() == [wanted]


def test_drafts_go_to_the_slots_of_their_rows() -> None:
    table = torch.full((6, 2), -7)
    rows = np.array([0, 2])
    packets.scatter(table, np.array([4, 1, 0]), rows, torch.tensor([[40, 41], [10, 11], [1, 2]], dtype=torch.int32))
    assert table.tolist() == [[1, 2], [-7, -7], [-7, -7], [-7, -7], [40, 41], [-7, -7]]


def test_drafts_that_never_came_become_tokens() -> None:
    """-1 would be looked up in the embeddings."""
    table = torch.full((2, 2), 9)
    packets.scatter(table, np.array([1]), np.array([0]), torch.full((1, 2), -1, dtype=torch.int32))
    assert table.tolist() == [[9, 9], [0, 0]]


def test_nothing_to_write() -> None:
    table = torch.full((2, 2), 9)
    packets.scatter(table, np.array([1]), np.empty(0, np.int64), torch.zeros((1, 2), dtype=torch.int32))
    assert table.tolist() == [[9, 9], [9, 9]]


def test_a_slot_that_was_freed_meanwhile_is_somebody_elses() -> None:
    slots = packets.Slots(4)
    rows = np.array([3, 1, 0])
    before = slots.snapshot(rows)
    assert slots.kept(rows, before).tolist() == [0, 1, 2]
    slots.freed(1)
    slots.freed(2)  # in no row
    assert slots.kept(rows, before).tolist() == [0, 2]
    assert slots.kept(rows, slots.snapshot(rows)).tolist() == [0, 1, 2]
