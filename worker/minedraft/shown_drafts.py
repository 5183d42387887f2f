"""What the first verifier is about to verify, shown to the grammars of rows, which are in the engine process.

Drafts go from the drafter to the verifiers and never pass the engine. But the mask of a draft's position follows from
the drafts before it, and only the grammar knows it. So the first verifier leaves each call's drafts in memory that both
share, before its forward pass; the engine process makes the masks while that runs. A message to the engine would wait
in the verifier's queue of replies until the pass is over.

One call's drafts are there at a time: the verifier gets the call after it only when the engine has read them.
"""

import mmap
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.minedraft import config

FILE = "drafts.shown"
_CALL, _SUM, _ENDED = range(3)
_NUMBERS = 3

#: How long to sleep between two looks: first, and at most (seconds).
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


class NotShownError(Exception):
    """The drafts of a call did not come: the engine is ending, or the first verifier hangs."""


class ShownDrafts:
    """The newest call's drafts.

    Args:
        folder: the engine's; None: known to this object alone.
        most: tokens of one call, at most.

    Raises:
        OSError: the file cannot be made, or its room is not there.
    """

    def __init__(self, folder: Path | None, most: int) -> None:
        self._numbers: NDArray[np.int64]
        self._tokens: NDArray[np.int32]
        start = _NUMBERS * np.dtype(np.int64).itemsize
        size = start + most * np.dtype(np.int32).itemsize
        memory: bytearray | mmap.mmap = bytearray(size)
        if folder is not None:
            with os.fdopen(os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600), "rb+") as file:
                os.posix_fallocate(file.fileno(), 0, size)  # whoever comes first makes it
                memory = mmap.mmap(file.fileno(), size)
        self._numbers = np.frombuffer(memory, np.int64, _NUMBERS)
        self._tokens = np.frombuffer(memory, np.int32, offset=start)

    @classmethod
    def of_engine(cls, vllm_config: Any) -> "ShownDrafts":
        """Those of the engine that this process belongs to, as its `VllmConfig` has it.

        Raises:
            OSError: see above.
        """
        rows = vllm_config.scheduler_config.max_num_seqs
        return cls(config.folder(), rows * vllm_config.speculative_config.num_speculative_tokens)

    def show(self, call: int, drafts: Mapping[str, Sequence[int]]) -> None:
        """Leave the drafts of a call (first verifier).

        Args:
            call: its number, higher than those before.
            drafts: of each request that has some, the tokens that will be verified.
        """
        tokens = list(chain.from_iterable(drafts.values()))
        self._tokens[: len(tokens)] = tokens
        self._numbers[_SUM] = self._sum(call, len(tokens))
        self._numbers[_CALL] = call

    def wait(self, call: int, placeholders: Mapping[str, Sequence[int]], patience_s: float) -> dict[str, list[int]]:
        """The drafts of a call, once they are there (engine process).

        Args:
            call: its number.
            placeholders: for each request that has drafts, as many tokens as those, in the order of `show`.
            patience_s: how long they may take (seconds).

        Raises:
            NotShownError: they took longer, or the engine is ending.
        """
        limit = time.monotonic() + patience_s
        pause = _FIRST_PAUSE_S
        count = sum(map(len, placeholders.values()))
        # Not all processors let others see stores in their order: the sum says that the tokens have come, too.
        while self._numbers[_CALL] != call or self._numbers[_SUM] != self._sum(call, count):
            if self._numbers[_ENDED]:
                raise NotShownError(f"the engine is ending: nobody shows the drafts of call {call}")
            if time.monotonic() > limit:
                raise NotShownError(f"the first verifier has not shown the drafts of call {call} for {patience_s:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        tokens = iter(self._tokens[:count].tolist())
        return {request: list(islice(tokens, len(row))) for request, row in placeholders.items()}

    def _sum(self, call: int, count: int) -> int:
        return zlib.crc32(self._tokens[:count].tobytes(), call & 0xFFFFFFFF)

    def end(self) -> None:
        """No drafts will be shown any more: whoever waits for some gives up (executor)."""
        self._numbers[_ENDED] = 1
