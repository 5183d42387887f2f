"""The command `worker trace`."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from worker.lab import follow, timeline_png, trace
from worker.lab.modes import MARK
from worker.lab.pictures import PictureError, require_matplotlib
from worker.lab.timeline import TraceError

_FOR = """\
Draws when the target verified, the drafter drafted and the engine process scheduled, from an engine that runs here
(`worker run --mode psd`, or a bench), or from what `worker bench --keep FOLDER` has left in FOLDER/mM/WAY.npz.
"""
_MOST_STEPS = 40


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        prog="worker trace", description=_FOR, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument("--engine", type=Path, metavar="FOLDER", help="the engine's folder (default: the one that runs)")
    made.add_argument("--seconds", type=float, default=5.0, help="how long to watch (default: 5)")
    made.add_argument("--load", type=Path, metavar="FILE", help="stage records that were saved, in place of an engine")
    made.add_argument("--save", type=Path, metavar="FILE", help="save the stage records")
    made.add_argument("--json", type=Path, metavar="FILE", help="leave a trace for ui.perfetto.dev or chrome://tracing")
    made.add_argument("--png", type=Path, metavar="FILE", help="leave a picture")
    made.add_argument("--steps", type=int, default=8, help="verify passes in the picture (default: 8)")
    made.add_argument("--title", help="title of the picture and the trace")
    return made


def run(argv: Sequence[str]) -> int:
    """Watch or load, and draw; 2 when it cannot be done."""
    asked = parser().parse_args(argv)
    if not (asked.json or asked.png or asked.save):
        return _fail("nothing to leave: --json FILE, --png FILE or --save FILE")
    if not 0 < asked.seconds < math.inf or not 1 <= asked.steps <= _MOST_STEPS:
        return _fail(f"--seconds must be above 0, --steps from 1 to {_MOST_STEPS}")
    try:
        if asked.png:
            require_matplotlib()
        if asked.load:
            records, meta = follow.load(asked.load)
        else:
            folder = follow.choose(asked.engine)
            records = follow.follow(folder, asked.seconds)
            meta = {"title": "an engine at work", "virtual": (folder / MARK).exists()}
        title, virtual = asked.title or meta["title"], meta["virtual"]
        if asked.save:
            follow.save(asked.save, records, {"title": title, "virtual": virtual})
        if asked.json:
            asked.json.write_text(json.dumps(trace.events(records, virtual=virtual, title=title)), encoding="utf-8")
        if asked.png:
            timeline_png.draw(records, asked.png, title=title, virtual=virtual, steps=asked.steps)
    except (TraceError, PictureError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    for path in filter(None, (asked.save, asked.json, asked.png)):
        sys.stdout.write(f"{path}\n")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"worker trace: {' '.join(message.split())}\n")
    return 2
