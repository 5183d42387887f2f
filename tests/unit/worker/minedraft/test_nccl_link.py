"""What the NCCL ends do with communicators and streams, and how they meet; `test_message_order.py` has their order."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from message_order import Communicator, Recording, Streams, Wire
from torch import Tensor
from vllm.distributed.device_communicators import pynccl

from worker.minedraft import nccl_link
from worker.minedraft.link import LinkError
from worker.minedraft.nccl_link import NcclDrafter, NcclVerifier
from worker.minedraft.packets import width

DRAFTS = 3
DEVICE = torch.device("cuda", 0)


class Heard(Communicator):
    """Keeps what it is told, and fails when it is asked to."""

    def __init__(self, error: str = "") -> None:
        super().__init__(Wire(Recording(), "wire", 2), 0)
        self.heard: list[tuple[str, Tensor, int, str]] = []
        self.error = error

    def send(self, tensor: Tensor, dst: int, stream: Any) -> None:
        self._hear("send", tensor, dst, stream)

    def recv(self, tensor: Tensor, src: int, stream: Any) -> None:
        self._hear("recv", tensor, src, stream)

    def broadcast(self, tensor: Tensor, src: int, stream: Any) -> None:
        self._hear("broadcast", tensor, src, stream)

    def _hear(self, what: str, tensor: Tensor, rank: int, stream: Any) -> None:
        if self.error:
            raise RuntimeError(self.error)
        self.heard.append((what, tensor, rank, stream.line[1]))


class Kept(Streams):
    """Knows whose memory is kept."""

    def __init__(self) -> None:
        super().__init__(Recording(), 0)
        self.kept: list[Tensor] = []

    def keep(self, message: Tensor) -> None:
        self.kept.append(message)


def verifier(rank: int = 0, error: str = "") -> tuple[NcclVerifier, Heard, Heard, Kept]:
    """An end, its communicators down and up, and its streams."""
    down, up, streams = Heard(error), Heard(error), Kept()
    return NcclVerifier(None if rank else down, up, 2, DRAFTS, streams), down, up, streams


def drafter(error: str = "") -> tuple[NcclDrafter, Heard, Heard, Kept]:
    """The same."""
    down, up, streams = Heard(error), Heard(error), Kept()
    return NcclDrafter(down, up, 2, DRAFTS, streams), down, up, streams


def test_packets_go_down_on_the_side_and_are_received_on_the_main_stream() -> None:
    end, down, up, streams = verifier()
    end.send_sampled(torch.ones(2, width(DRAFTS)))
    ((what, message, to, stream),) = down.heard
    assert (what, to, stream) == ("send", 1, "side")
    assert (message.shape, message.dtype) == ((2, DRAFTS + 3), torch.int32)
    assert streams.kept == [message]
    assert not up.heard

    other, down, up, _ = drafter()
    received = other.recv_sampled(2)
    ((what, message, source, stream),) = down.heard
    assert (what, source, stream) == ("recv", 0, "main")
    assert received is message
    assert (message.shape, message.dtype) == ((2, DRAFTS + 3), torch.int32)
    assert not up.heard


def test_drafts_are_broadcast_on_the_side_stream() -> None:
    end, down, up, streams = drafter()
    end.send_drafts(torch.ones(2, DRAFTS))
    ((what, message, root, stream),) = up.heard
    assert (what, root, stream) == ("broadcast", 2, "side")
    assert (message.shape, message.dtype) == ((2, DRAFTS), torch.int32)
    assert streams.kept == [message]
    assert not down.heard


@pytest.mark.parametrize("rank", [0, 1])
def test_every_verifier_receives_drafts_on_its_main_stream(rank: int) -> None:
    end, down, up, _ = verifier(rank)
    received = end.recv_drafts(2)
    ((what, message, root, stream),) = up.heard
    assert (what, root, stream) == ("broadcast", 2, "main")
    assert received is message
    assert (message.shape, message.dtype) == ((2, DRAFTS), torch.int32)
    assert not down.heard


def test_the_other_verifiers_send_nothing() -> None:
    end, down, up, _ = verifier(1)
    end.send_sampled(torch.ones(2, width(DRAFTS)))
    assert not [*down.heard, *up.heard]


def test_nothing_is_received_before_it_is_wanted() -> None:
    (end, *ours), (other, *theirs) = verifier(), drafter()
    end.expect_drafts(2)
    other.expect_sampled(2)
    assert not [heard for communicator in (*ours[:2], *theirs[:2]) for heard in communicator.heard]


@pytest.mark.parametrize("turned", [False, True])
def test_ids_go_as_they_are_now(turned: bool) -> None:
    """NCCL reads contiguous memory, and later; vLLM's speculator may write its next drafts into the same tensor."""
    memory = torch.arange(9, dtype=torch.int32).reshape(3, 3)
    drafts = memory.T if turned else memory
    ids = drafts.tolist()
    end, _, up, _ = drafter()
    end.send_drafts(drafts)
    memory.zero_()
    assert up.heard[0][1].tolist() == ids
    assert up.heard[0][1].is_contiguous()


def test_who_waits_for_sends_waits_for_the_oldest_ones_once() -> None:
    waited: list[int] = []
    end, _, _, streams = drafter()
    events = iter(SimpleNamespace(synchronize=partial(waited.append, number)) for number in range(4))
    streams.sent = lambda: next(events)  # type: ignore[method-assign, assignment, return-value]
    end.wait_sent(0)
    for _ in range(3):
        end.send_drafts(torch.ones(1, DRAFTS))
    end.wait_sent(3)
    assert waited == []
    end.wait_sent(1)
    assert waited == [0, 1]
    end.send_nothing()
    end.wait_sent(0)
    assert waited == [0, 1, 2, 3]


def operations(end: NcclVerifier | NcclDrafter) -> list[Callable[[], object]]:
    """All that it does with communicators."""
    if isinstance(end, NcclVerifier):
        return [lambda: end.recv_drafts(1), lambda: end.send_sampled(torch.ones(1, width(DRAFTS)))]
    return [lambda: end.recv_sampled(1), lambda: end.send_drafts(torch.ones(1, DRAFTS))]


def test_what_nccl_raises_is_a_link_error() -> None:
    for end in (verifier(error="NCCL error: x")[0], drafter("NCCL error: x")[0]):
        for verb, operation in zip(("receive", "send"), operations(end), strict=True):
            with pytest.raises(LinkError, match=f"NCCL did not {verb} a message: NCCL error: x"):
                operation()


def test_a_closed_link_gives_up_its_communicators_once_and_does_nothing_more() -> None:
    """vLLM's own would silently do nothing, and memory that nobody wrote would be taken for ids."""
    for end, down, up, _ in (verifier(), drafter()):
        end.close()
        end.close()
        assert (down.destroyed, up.destroyed) == (1, 1)
        for operation in operations(end):
            with pytest.raises(LinkError, match="closed"):
                operation()
        assert not [*down.heard, *up.heard]


def test_a_closed_link_of_another_verifier_gives_up_the_one_that_it_has() -> None:
    end, down, up, _ = verifier(1)
    end.close()
    assert (down.destroyed, up.destroyed) == (0, 1)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_first_message_goes_each_way_and_is_waited_for(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL connects ranks, and takes memory, when they first speak."""
    done: list[str] = []
    stream = SimpleNamespace(line=(0, "main"), synchronize=lambda: done.append("waited"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    down, up = Heard(), Heard()
    nccl_link._exchange(down if rank != 1 else None, up, rank, 2, torch.device("cpu"))
    assert [heard[0] for heard in down.heard] == [["send"], [], ["recv"]][rank]
    assert [(heard[0], heard[2]) for heard in up.heard] == [("broadcast", 2)]
    assert done == ["waited"]


def test_communicators_are_given_up_at_the_same_time() -> None:
    """What spins in one of them holds up the end of the others."""
    both = threading.Barrier(2, timeout=10)
    end, down, up, _ = verifier()
    down.destroy = up.destroy = both.wait  # type: ignore[method-assign,assignment]
    end.close()
    assert not both.broken


class CudaStream:
    """Remembers."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.waited: list[Any] = []
        self.recorded: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.waited.append(other)

    def record_event(self, event: Any) -> Any:
        self.recorded.append(event)
        return event


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As much of CUDA as streams need."""
    state = SimpleNamespace(current=CudaStream(DEVICE), capturing=False)
    monkeypatch.setattr(torch.cuda, "Stream", CudaStream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: state.current if device == DEVICE else None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(torch.cuda, "Event", SimpleNamespace)
    return state


def test_the_side_stream_is_behind_the_main_one_and_its_events_sleep(cuda: SimpleNamespace) -> None:
    streams = nccl_link.Streams(DEVICE)
    assert streams.main() is cuda.current
    side: Any = streams.sending()
    assert side is not cuda.current
    assert (side.device, side.waited) == (DEVICE, [cuda.current])
    recorded: list[Any] = []
    streams.keep(SimpleNamespace(record_stream=recorded.append))  # type: ignore[arg-type]
    assert recorded == [side]
    event = streams.sent()
    assert (side.recorded, event.blocking) == ([event], True)


def test_no_message_becomes_part_of_a_graph(cuda: SimpleNamespace) -> None:
    streams = nccl_link.Streams(DEVICE)
    cuda.capturing = True
    with pytest.raises(AssertionError, match="graph"):
        streams.main()
    with pytest.raises(AssertionError, match="graph"):
        streams.sending()


class PyNccl:
    """Meets the others as vLLM's does: the first rank makes an id, the others read it."""

    made: list["PyNccl"]
    """Those of this test."""
    ids = itertools.count()
    error = ""
    """What making one of more than two ranks raises."""
    disabled = False

    def __init__(self, group: Any, device: torch.device) -> None:
        self.place, self.device, self.destroyed = (group.rank, group.world_size), device, 0
        self.id = group.broadcast_obj(None if group.rank else next(self.ids), src=0)
        self.made.append(self)
        if self.error and group.world_size > 2:
            raise RuntimeError(self.error)

    def destroy(self) -> None:
        self.destroyed += 1


@pytest.fixture
def _pynccl(monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace) -> None:
    monkeypatch.setattr(pynccl, "PyNcclCommunicator", PyNccl)
    monkeypatch.setattr(PyNccl, "made", [], raising=False)
    monkeypatch.setattr(nccl_link, "_exchange", lambda *_: None)
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)


def connect(folder: Path, verifiers: int) -> list[NcclVerifier | NcclDrafter | LinkError]:
    """Let all ranks meet, the drafter last; what came of it."""
    address = str(folder / "link")

    def one(rank: int) -> NcclVerifier | NcclDrafter | LinkError:
        try:
            if rank == verifiers:
                return NcclDrafter.connect(address, verifiers, DRAFTS, DEVICE)
            return NcclVerifier.connect(address, rank, verifiers, DRAFTS, DEVICE)
        except LinkError as error:
            return error

    with ThreadPoolExecutor(verifiers + 1) as threads:
        return list(threads.map(one, range(verifiers + 1)))


@pytest.mark.usefixtures("_pynccl")
@pytest.mark.parametrize("verifiers", [1, 2, 4])
def test_ranks_meet_in_two_communicators(verifiers: int, tmp_path: Path) -> None:
    ends = connect(tmp_path, verifiers)
    assert [type(end) for end in ends] == [NcclVerifier] * verifiers + [NcclDrafter]
    parts: Any = [(end._down, end._up) for end in ends if not isinstance(end, LinkError)]
    downs = [down for down, _ in parts]
    assert [down and down.place for down in downs] == [(0, 2), *[None] * (verifiers - 1), (1, 2)]
    assert [up.place for _, up in parts] == [(rank, verifiers + 1) for rank in range(verifiers + 1)]
    assert len({up.id for _, up in parts}) == 1
    assert downs[0].id == downs[-1].id != parts[0][1].id
    assert all(made.device == DEVICE for made in PyNccl.made)


@pytest.mark.usefixtures("_pynccl")
def test_ranks_that_share_a_gpu_are_told_which_link_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there already is given up: its peer may go on."""
    monkeypatch.setattr(PyNccl, "error", "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)")
    for error in connect(tmp_path, 2):
        assert isinstance(error, LinkError)
        assert "two ranks share a GPU: --link host" in str(error)
    assert [made.destroyed for made in PyNccl.made if made.place[1] == 2] == [1, 1]


@pytest.mark.usefixtures("_pynccl")
def test_another_error_is_not_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PyNccl, "error", "NCCL error: unhandled system error")
    for error in connect(tmp_path, 2):
        assert isinstance(error, LinkError)
        assert str(error) == "the ranks did not connect: NCCL error: unhandled system error"


@pytest.mark.usefixtures("_pynccl")
def test_a_communicator_that_would_silently_do_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PyNccl, "disabled", True)
    for error in connect(tmp_path, 1):
        assert isinstance(error, LinkError)
        assert "found no NCCL" in str(error)


@pytest.mark.usefixtures("_pynccl")
def test_streams_that_are_one_queue_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    for error in connect(tmp_path, 1):
        assert isinstance(error, LinkError)
        assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in str(error)
    assert not PyNccl.made


@pytest.mark.usefixtures("_pynccl")
def test_who_is_alone_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_link, "_WITHIN", timedelta(seconds=0.2))
    with pytest.raises(LinkError, match="did not connect"):
        NcclDrafter.connect(str(tmp_path / "link"), 1, DRAFTS, DEVICE)
