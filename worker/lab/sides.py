"""The sides of a bench, seen from the bench: start them, let them take turns, end them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.lab.result import Scenario, Turn
from worker.lab.side_common import Told

#: How long a side may take to end before it is killed (seconds).
_END_S = 60.0


class SideError(Exception):
    """A side has failed; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a side is started.

    Attributes:
        scenario: which.
        told: what it is.
        variables: of its environment, beside this process's own.
    """

    scenario: Scenario
    told: Told
    variables: Mapping[str, str]


class Side:
    """A process with an engine.

    Args:
        setup: what it is.
        log: the file that gets what it and vLLM have to say.
    """

    def __init__(self, setup: Setup, log: Path) -> None:
        self.setup = setup
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker.lab.side"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, **setup.variables},
                text=True,
                encoding="utf-8",
            )
        self._write(setup.told.to_json())

    def ready(self) -> None:
        """Wait until its engine is up.

        Raises:
            SideError: it cannot start.
        """
        self._read()

    def turn(self, records: Path | None = None) -> tuple[Turn, list[str]]:
        """Let it answer all rows.

        Args:
            records: the file that gets its stage records.

        Returns:
            What was measured, and a digest of each row's text.

        Raises:
            SideError: it failed.
        """
        self._write(json.dumps({"records": None if records is None else str(records)}))
        answer = self._read()
        turn = answer["turn"]
        return Turn(**{**turn, "acceptance_at": tuple(turn["acceptance_at"])}), answer["texts"]

    def close(self) -> None:
        """End it, and its engine."""
        with suppress(OSError):  # what was not written yet goes nowhere
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, message: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{message}\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it has ended, or was
            raise SideError(self._failure()) from None

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SideError(self._failure())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{self.setup.scenario.name} failed: {lines[-1] if lines else 'it said nothing'}"
