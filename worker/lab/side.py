"""One side of a bench: a process with an engine that stays up, and answers all rows each time it is told to.

Started by `sides.py`, which speaks to it in lines of JSON: what to be, then for each turn where to leave the stage
records. It answers `{"ready": true}`, and each turn with a `Turn` and what the texts were. Everything that it and vLLM
have to say for people is on standard error.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from producer.server.errors import ServerError
from worker.engine.protocol import EngineDead, EngineStartError, RowError
from worker.lab import follow, side_engine, side_queue, side_run_batch
from worker.lab.side_common import Answered, RowFailed, Told

#: Starts what answers all rows each time it is called.
Program = Callable[[Told], AbstractAsyncContextManager[Callable[[], Awaitable[Answered]]]]

PROGRAMS: Mapping[str, Program] = {
    "engine": side_engine.opened,
    "queue": side_queue.opened,
    "run-batch": side_run_batch.opened,
}


async def main(told: Told, commands: TextIO, say: Callable[[Any], None]) -> None:
    """Start, answer the rows once for each command, and end with the commands."""
    async with PROGRAMS[told.program](told) as answer_rows:
        say({"ready": True})
        while line := await asyncio.to_thread(commands.readline):
            answered = await answer_rows()
            if (path := json.loads(line)["records"]) and answered.records:
                follow.save(Path(path), answered.records, {"title": told.title, "virtual": told.virtual})
            say({"turn": asdict(answered.turn), "texts": answered.texts})


if __name__ == "__main__":
    # Whatever is printed on standard output by others must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: Any) -> None:
        """Answer the bench."""
        answers.write(f"{json.dumps(message)}\n")
        answers.flush()

    try:
        asyncio.run(main(Told.from_json(sys.stdin.readline()), sys.stdin, say))
    except (EngineStartError, EngineDead, RowError, RowFailed, ServerError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
