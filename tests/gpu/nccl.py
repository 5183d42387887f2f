"""NCCL as torch brings it, called as vLLM calls it (`distributed/device_communicators/pynccl.py`): to do without vLLM.

Every operation goes to the stream that is named, and nothing else happens: torch's own process groups have streams of
their own, and share them between directions, which is just what must not be tried out here.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Store

_TYPES = {torch.int32: 2, torch.int64: 4, torch.float32: 7}  # ncclDataType_t


class NcclError(RuntimeError):
    """NCCL refused; the message is its own."""


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Communicator:
    """A communicator of some ranks, one operation after the other.

    Args:
        store: where the ranks find each other.
        name: of the communicator, in that store.
        rank: of this process.
        ranks: how many there are.

    Raises:
        NcclError: it cannot be made, as between two ranks of one GPU.
    """

    def __init__(self, store: Store, name: str, rank: int, ranks: int) -> None:
        self._nccl = ctypes.CDLL("libnccl.so.2")  # which torch has loaded
        self._nccl.ncclGetErrorString.restype = self._nccl.ncclGetLastError.restype = ctypes.c_char_p
        unique = _UniqueId()
        if rank == 0:
            self._call("ncclGetUniqueId", ctypes.byref(unique))
            store.set(name, bytes(unique).hex())
        else:
            ctypes.memmove(ctypes.byref(unique), bytes.fromhex(store.get(name).decode()), ctypes.sizeof(unique))
        self._comm = ctypes.c_void_p()
        self._call("ncclCommInitRank", ctypes.byref(self._comm), ranks, unique, rank)

    def send(self, tensor: Tensor, dst: int, stream: Any = None) -> None:
        self._call("ncclSend", *_memory(tensor), dst, self._comm, _handle(stream))

    def recv(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        self._call("ncclRecv", *_memory(tensor), src, self._comm, _handle(stream))

    def broadcast(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        pointer, *rest = _memory(tensor)
        self._call("ncclBroadcast", pointer, pointer, *rest, src, self._comm, _handle(stream))

    def destroy(self) -> None:
        if self._comm:
            self._call("ncclCommAbort", self._comm)
            self._comm = ctypes.c_void_p()

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._nccl, name)(*arguments):
            said, last = self._nccl.ncclGetErrorString(code), self._nccl.ncclGetLastError(None)
            raise NcclError(f"{name}: {said.decode()}: {last.decode().strip()}")


def _memory(tensor: Tensor) -> tuple[Any, Any, int]:
    assert tensor.is_cuda
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.numel()), _TYPES[tensor.dtype]


def _handle(stream: Any) -> Any:
    return ctypes.c_void_p((torch.cuda.current_stream() if stream is None else stream).cuda_stream)
