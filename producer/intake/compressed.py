"""A compressed stream as the bytes within, in bounded memory; known by how it begins, so standard input may be one."""

import gzip
import io
import sys
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

from producer.intake.refused import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES = 2**17


def is_packed(head: bytes) -> bool:
    """True for the first bytes, at least 4, of gzip and of zstd."""
    return head.startswith((_GZIP, _ZSTD))


def decompressed(stream: BinaryIO, head: bytes, name: str) -> io.BufferedReader | None:
    """What gzip or zstd packed into `stream`, all members and frames of it; None where `head` begins neither.

    A packed file may unpack to any size: no more than is read is ever held.

    Args:
        stream: the whole of it, `head` included.
        head: its first bytes, at least 4 where it has so many.
        name: what messages call it.

    Raises (when the result is read):
        SourceError: it is damaged or cut off. What was read before is no reason to go on: rows would be missing.
    """
    unpacked: _Unpacked
    if head.startswith(_GZIP):
        unpacked = _Unpacked(gzip.GzipFile(fileobj=stream), (gzip.BadGzipFile, zlib.error), f"{name}: its gzip stream")
    elif head.startswith(_ZSTD):
        zstd = zstd_module()
        unpacked = _Unpacked(zstd.ZstdFile(stream), (zstd.ZstdError,), f"{name}: its zstd stream")
    else:
        return None
    return io.BufferedReader(unpacked, _BUFFER_BYTES)


def zstd_module() -> Any:
    """Python 3.14's `compression.zstd`, or its backport; loaded when it is asked for."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - few files need it
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


class _Unpacked(io.RawIOBase):
    """What an unpacking file gives; its many ways to say that the packed bytes are no good become one."""

    def __init__(self, unpacking: Any, damage: tuple[type[Exception], ...], what: str) -> None:
        super().__init__()
        self._unpacking, self._damage, self._what = unpacking, damage, what

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        try:
            return int(self._unpacking.readinto(buffer))
        except EOFError:
            raise SourceError(f"{self._what} is cut off; copy the file again") from None
        except self._damage as error:
            # zstd's limit is 128 MiB, which only its --long and --ultra exceed.
            fix = "pack it without --long" if "too much memory" in str(error) else "copy or pack the file again"
            raise SourceError(f"{self._what} cannot be unpacked: {error}; {fix}") from None
