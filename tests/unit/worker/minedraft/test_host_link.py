"""The link through host memory, over gloo's own sockets, between two ends in one process."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import FileStore, ProcessGroupGloo

from worker.minedraft import host_link
from worker.minedraft.host_link import HostLink
from worker.minedraft.link import MAX_OUTSTANDING, GlooLink, LinkError
from worker.minedraft.packets import width
from worker.minedraft.relay import NO_DRAFT, FirstVerifier

DRAFTS = 3
CPU = torch.device("cpu")
#: More than anything here takes, unless it waits for ever.
DEADLINE = timedelta(seconds=20)


@pytest.fixture
def groups(tmp_path: Path) -> list[Any]:
    """Verifier 0's and the drafter's."""

    def one(rank: int) -> Any:
        return ProcessGroupGloo(FileStore(str(tmp_path / "gloo"), -1), rank, 2, timeout=DEADLINE)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


@pytest.fixture
def ends(groups: list[Any]) -> Iterator[list[HostLink]]:
    """Verifier 0's and the drafter's."""
    ends = [HostLink(group, DRAFTS, DEADLINE, CPU) for group in groups]
    yield ends
    for end in ends:
        end.close()


def packet(number: int, rows: int = 2) -> Tensor:
    return torch.full((rows, width(DRAFTS)), number, dtype=torch.int32)


def drafts(number: int, rows: int = 2) -> Tensor:
    return torch.full((rows, DRAFTS), number, dtype=torch.int64)


class Device:
    """Copies from it are there when it is told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = threading.Semaphore(0)
        self.error: Exception | None = None
        monkeypatch.setattr(host_link, "_copied", lambda message: (message.clone(), self))

    def synchronize(self) -> None:
        assert self.done.acquire(timeout=DEADLINE.total_seconds())
        if self.error is not None:
            raise self.error


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_messages_come_as_they_were_sent_in_both_directions(ends: list[HostLink]) -> None:
    first, drafter = ends
    for number in range(50):
        rows = 1 + number % 4
        if number % 2:
            drafter.expect_sampled(rows)
        first.send_sampled(packet(number, rows))
        first.expect_drafts(rows)
        received = drafter.recv_sampled(rows)
        assert received.equal(packet(number, rows))
        drafter.send_drafts(drafts(number, rows))
        assert (received := first.recv_drafts(rows)).tolist() == drafts(number, rows).tolist()
        assert received.dtype == torch.int32


def test_messages_of_two_calls_may_be_under_way(ends: list[HostLink]) -> None:
    first, drafter = ends
    for number in (1, 2):
        first.send_sampled(packet(number))
    assert [drafter.recv_sampled(2)[0, 0].item() for _ in range(2)] == [1, 2]


def test_proposals_follow_their_drafts(ends: list[HostLink]) -> None:
    first, drafter = ends
    drafter.send_drafts(drafts(1))
    drafter.send_proposals(torch.full((1, DRAFTS, 5), 0.5))
    first.expect_drafts(2)
    first.expect_proposals(1, 5)
    assert first.recv_drafts(2).shape == (2, DRAFTS)
    assert first.recv_proposals(1, 5).tolist() == [[[0.5] * 5] * DRAFTS]


def test_ids_go_as_they_are_now(ends: list[HostLink]) -> None:
    """On a CPU, too: vLLM's speculator may write its next drafts into the same tensor."""
    first, drafter = ends
    message = drafts(7)
    for _ in range(20):
        message.fill_(7)
        drafter.send_drafts(message)
        message.zero_()
    assert all(first.recv_drafts(2).eq(7).all() for _ in range(20))


def test_nobody_waits_for_the_device_but_the_link_itself(ends: list[HostLink], device: Device) -> None:
    first, drafter = ends
    for number in (1, 2):
        first.send_sampled(packet(number))  # returns, though nothing has been computed
    drafter.expect_sampled(2)
    device.done.release()
    assert drafter.recv_sampled(2).equal(packet(1))
    device.done.release()
    assert drafter.recv_sampled(2).equal(packet(2))


def test_who_waits_for_sends_waits_until_so_many_are_under_way(ends: list[HostLink], device: Device) -> None:
    _, drafter = ends
    drafter.wait_sent(0)
    for number in range(3):
        drafter.send_drafts(drafts(number))
    drafter.wait_sent(3)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(drafter.wait_sent, 1)
        device.done.release()
        drafter.wait_sent(2)
        time.sleep(0.05)
        assert not waiting.done()
        device.done.release()
        waiting.result(DEADLINE.total_seconds())
    device.done.release()
    drafter.wait_sent(0)


def test_a_call_without_drafts_is_under_way_until_the_device_has_computed_it(
    ends: list[HostLink], device: Device
) -> None:
    first, drafter = ends
    drafter.send_nothing()
    drafter.send_drafts(drafts(7))
    drafter.wait_sent(2)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(drafter.wait_sent, 1)
        time.sleep(0.05)
        assert not waiting.done()
        device.done.release()
        waiting.result(DEADLINE.total_seconds())
    device.done.release()
    assert first.recv_drafts(2).equal(drafts(7)), "and nothing was sent"


def test_who_waits_for_sends_does_not_wait_for_ever(groups: list[Any], device: Device) -> None:
    link = HostLink(groups[1], DRAFTS, timedelta(seconds=0.1), CPU)
    link.send_drafts(drafts(1))
    with pytest.raises(LinkError, match=r"not computed within 0\.1 s"):
        link.wait_sent(0)
    device.done.release()
    link.close()


def operations(link: HostLink) -> list[Callable[[], object]]:
    """All that one can ask of it."""
    return [
        lambda: link.send_sampled(packet(1)),
        lambda: link.expect_sampled(2),
        lambda: link.recv_sampled(2),
        lambda: link.send_drafts(drafts(1)),
        link.send_nothing,
        lambda: link.expect_drafts(2),
        lambda: link.recv_drafts(2),
        lambda: link.send_proposals(torch.ones(1, DRAFTS, 5)),
        lambda: link.expect_proposals(1, 5),
        lambda: link.recv_proposals(1, 5),
        lambda: link.wait_sent(9),
    ]


def test_an_error_on_the_way_is_told_by_whatever_is_asked_next(ends: list[HostLink], device: Device) -> None:
    first, _ = ends
    device.error = RuntimeError("CUDA error: an illegal memory access")
    first.send_sampled(packet(1))
    first.send_sampled(packet(2))
    device.done.release()
    with pytest.raises(LinkError, match="illegal memory access"):
        first.wait_sent(0)
    for operation in operations(first):
        with pytest.raises(LinkError, match="illegal memory access"):
            operation()
    assert not first._thread.is_alive()


def test_a_verifier_outlives_a_drafter_that_is_gone(groups: list[Any]) -> None:
    lost: list[LinkError] = []
    link = HostLink(groups[0], DRAFTS, timedelta(seconds=5), CPU)
    first = FirstVerifier(link, None, DRAFTS, lost.append)
    groups.clear()  # closes the drafter's sockets
    while not lost:
        first.send_sampled(packet(1))
        received = first.recv_drafts(2)
    assert received.tolist() == [[NO_DRAFT] * DRAFTS] * 2
    first.send_sampled(packet(2))
    assert len(lost) == 1
    assert not link._thread.is_alive()


def test_a_link_closes_at_once_and_does_nothing_more(ends: list[HostLink]) -> None:
    for end in ends:
        thread = end._thread
        end.close()
        end.close()
        assert not thread.is_alive()
        for operation in operations(end):
            with pytest.raises(LinkError, match="closed"):
                operation()


def test_a_send_that_hangs_does_not_keep_a_link_from_closing(ends: list[HostLink]) -> None:
    """The other rank lives and takes nothing: gloo waits once there is too much under way."""
    first, _ = ends
    for number in range(2 * MAX_OUTSTANDING):
        first.send_sampled(packet(number))
    while first._under_way > MAX_OUTSTANDING:
        time.sleep(0.001)
    began = time.monotonic()
    first.close()
    assert not first._thread.is_alive()
    assert time.monotonic() - began < 1.0 + 0.5  # and something for a busy machine


def test_a_device_that_hangs_does_not_keep_a_link_from_closing(
    ends: list[HostLink], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = ends
    sent: list[Tensor] = []
    monkeypatch.setattr(first._outgoing, "send_sampled", sent.append)
    first.send_sampled(packet(1))
    began = time.monotonic()
    first.close()
    assert time.monotonic() - began < 1.0 + 0.5
    device.done.release()  # after all
    first._thread.join(DEADLINE.total_seconds())
    assert not first._thread.is_alive()
    assert sent == []


class OnDevice(Tensor):
    """One that says so."""

    is_cuda = True  # type: ignore[assignment]


def test_a_copy_from_a_device_is_pinned_and_its_event_is_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    empty, pinned, recorded = torch.empty, [], []

    class Event:
        def __init__(self, *, blocking: bool) -> None:
            assert blocking, "a thread that spins takes a core"

        def record(self, stream: object) -> None:
            recorded.append((stream, pinned[-1].tolist()))

    def make(*args: Any, pin_memory: bool, **kwargs: Any) -> Tensor:
        pinned.append(empty(*args, **kwargs))
        assert pin_memory
        return pinned[-1]

    monkeypatch.setattr(torch, "empty", make)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"current of {device}")
    ids, copied = host_link._copied(drafts(5).as_subclass(OnDevice))  # type: ignore[arg-type]
    assert ids is pinned[0]
    assert ids.tolist() == drafts(5).tolist()
    assert isinstance(copied, Event)
    assert recorded == [("current of cpu", drafts(5).tolist())]


def test_what_is_received_for_a_gpu_is_pinned(groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, torch.device]] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor + 100)
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda device: chosen.append((threading.current_thread().name, device))
    )
    gpu = HostLink(groups[0], DRAFTS, DEADLINE, torch.device("cuda", 1))
    cpu = HostLink(groups[1], DRAFTS, DEADLINE, CPU)
    cpu.send_drafts(drafts(1))
    gpu.send_sampled(packet(1))
    assert gpu.recv_drafts(2).tolist() == drafts(101).tolist()
    assert cpu.recv_sampled(2).tolist() == packet(1).tolist()
    # A thread that has not chosen takes memory of the first GPU.
    assert chosen == [("minedraft-link", torch.device("cuda", 1))]
    gpu.close()
    cpu.close()


def test_ends_meet(tmp_path: Path) -> None:
    def one(rank: int) -> HostLink:
        return HostLink.connect(str(tmp_path / "link"), rank, DRAFTS, DEADLINE, None, CPU)

    with ThreadPoolExecutor(2) as threads:
        first, drafter = threads.map(one, (GlooLink.FIRST, GlooLink.DRAFTER))
    first.send_sampled(packet(3))
    assert drafter.recv_sampled(2).equal(packet(3))
    first.close()
    drafter.close()


def test_who_is_alone_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"within 0\.1 s"):
        HostLink.connect(str(tmp_path / "link"), 0, DRAFTS, DEADLINE, timedelta(seconds=0.1), CPU)
