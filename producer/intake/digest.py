"""A job's identity: the same rows, with the same defaults, for the same model are the same job."""

import hashlib
import json
from typing import Any

from producer.intake.lines import Line, TooLong

# Changes whenever the meaning of a digest changes, so that no old job is taken for a new one.
_VERSION = b"minedraft job 1"


class JobDigest:
    """SHA-256 over rows in their order, built up one row at a time in constant memory."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._add(_VERSION)

    def update(self, row_json: str) -> None:
        """Add the next row, as `Row.to_json` spells it (its `custom_id` included)."""
        self._add(row_json.encode())

    def update_refused(self, line: Line | TooLong) -> None:
        """Add the next line, which is no row: its bytes, or their number where they were skipped."""
        self.update(line.data.decode("latin-1") if isinstance(line, Line) else f"{line.size} bytes")

    def hexdigest(self, model: str, defaults: dict[str, Any]) -> str:
        """The identity (64 hex digits) of the rows so far for `model` with `defaults` as request parameters.

        The order of keys in `defaults` makes no difference. More rows may be added afterwards.
        """
        end = JobDigest()
        end._add(self._hash.digest())
        end._add(model.encode())
        end._add(json.dumps(defaults, sort_keys=True, separators=(",", ":")).encode())
        return end._hash.hexdigest()

    def _add(self, part: bytes) -> None:
        """Every part with its length before it: no two lists of parts give the same bytes."""
        self._hash.update(len(part).to_bytes(8, "big"))
        self._hash.update(part)
