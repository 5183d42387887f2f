"""NCCL is called as its header says: a library that writes down how it was called stands for it."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu import nccl
from gpu.nccl import Communicator, NcclError

STREAM = SimpleNamespace(cuda_stream=77)


class Function:
    def __init__(self, library: "Library", name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *arguments: Any) -> Any:
        return self._library.called(self._name, *arguments)


class Library:
    """Attributes:
    calls: name and arguments of each, as plain numbers where they are some.
    refuses: what fails.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refuses = ""
        self.ids: list[bytes] = []

    def __getattr__(self, name: str) -> Function:
        function = Function(self, name)
        setattr(self, name, function)
        return function

    def called(self, name: str, *arguments: Any) -> Any:
        if name == "ncclGetErrorString":
            return b"invalid usage"
        if name == "ncclGetLastError":
            return b"\nDuplicate GPU detected : rank 0 and rank 1"
        self.calls.append((name, *(getattr(it, "value", it) for it in arguments)))
        if name == "ncclGetUniqueId":
            arguments[0]._obj.internal[:] = range(128)
        if name == "ncclCommInitRank":
            self.ids.append(bytes(arguments[2]))
            arguments[0]._obj.value = 1234
        return 5 if name == self.refuses else 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libnccl.so.2": found}[name])
    monkeypatch.setattr(nccl, "_memory", lambda tensor: (1000, tensor.numel(), nccl._TYPES[tensor.dtype]))
    return found


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return torch.distributed.FileStore(str(tmp_path / "store"), -1)


def test_ranks_meet_by_an_id_of_the_first(library: Library, store: Any) -> None:
    for rank in range(2):
        Communicator(store, "down", rank, 2)
    assert library.ids == [bytes(range(128))] * 2
    assert [call[0] for call in library.calls] == ["ncclGetUniqueId", "ncclCommInitRank", "ncclCommInitRank"]
    assert [(call[2], call[4]) for call in library.calls[1:]] == [(2, 0), (2, 1)]


def test_each_operation_goes_to_its_stream(library: Library, store: Any) -> None:
    communicator, message = Communicator(store, "down", 0, 2), torch.zeros((3, 4), dtype=torch.int32)
    library.calls.clear()
    communicator.send(message, 1, STREAM)
    communicator.recv(message, 1, STREAM)
    communicator.broadcast(message, 1, STREAM)
    communicator.destroy()
    communicator.destroy()
    assert library.calls == [
        ("ncclSend", 1000, 12, 2, 1, 1234, 77),
        ("ncclRecv", 1000, 12, 2, 1, 1234, 77),
        ("ncclBroadcast", 1000, 1000, 12, 2, 1, 1234, 77),
        ("ncclCommAbort", 1234),
    ]


def test_what_nccl_refuses_is_said_in_its_words(library: Library, store: Any) -> None:
    library.refuses = "ncclCommInitRank"
    with pytest.raises(NcclError, match="ncclCommInitRank: invalid usage: Duplicate GPU detected"):
        Communicator(store, "down", 0, 2)
