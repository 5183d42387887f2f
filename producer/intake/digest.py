"""A job's identity: the same rows, with the same defaults, for the same model are the same job."""

import hashlib
import json
from typing import Any

from producer.intake.lines import Line, TooLong

# Changes whenever the meaning of a digest changes, so that no old job is taken for a new one.
_VERSION = b"minedraft job 2"

#: Rows that are hashed in one go: cheaper than one by one.
_AT_ONCE = 64


class JobDigest:
    """SHA-256 over rows in their order, built up one row at a time in constant memory."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(_VERSION + b"\n")
        self._waiting: list[bytes] = []

    def update(self, row_json: bytes) -> None:
        """Add the next row, as `Row.to_json` spells it (its `custom_id` included): an object without a newline."""
        self._waiting.append(row_json)
        if len(self._waiting) >= _AT_ONCE:
            self._flush()

    def update_refused(self, line: Line | TooLong) -> None:
        """Add the next line, which is no row: its bytes, or their number where they were skipped."""
        # No row begins with such a mark.
        self.update(b"!" + line.data if isinstance(line, Line) else b"#%d bytes" % line.size)

    def so_far(self) -> str:
        """The digest (64 hex digits) of all that was added until now; more may be added afterwards."""
        self._flush()
        return self._hash.hexdigest()

    def hexdigest(self, model: str, defaults: dict[str, Any], *, dedupe: bool = False) -> str:
        """The identity (64 hex digits) of the rows so far for `model` with `defaults` as request parameters.

        `dedupe`: equal rows get one answer. The order of keys in `defaults` makes no difference. More rows may be
        added afterwards.
        """
        return identity(self.so_far(), model, defaults, dedupe=dedupe)

    def _flush(self) -> None:
        self._waiting.append(b"")  # a newline after the last, too
        self._hash.update(b"\n".join(self._waiting))
        self._waiting.clear()


def identity(rows: str, model: str, defaults: dict[str, Any], *, dedupe: bool) -> str:
    """As `JobDigest.hexdigest`, of rows whose digest is known."""
    about = [rows, model, defaults] + ["dedupe"] * dedupe
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
