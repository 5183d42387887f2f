"""`make demo`: 16 real prompts through a private Redis and one worker, answered by the embedded model in two batches.

Everything started here ends with this process, even if it is killed: a small guard process waits for the end
of a pipe that only this process holds, and then stops the worker and Redis and removes their data.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from pathlib import Path

from two_batches import Measured, in_words, measured

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PROMPTS = ROOT / "ops" / "examples" / "vicuna80.jsonl"
ROWS = 16
ANSWER_LINES = 4
#: Longer than the worker takes to count what its engine has measured (seconds).
COUNTED_S = 1.5

GUARD = """
read -r _
kill -TERM "$1" 2>/dev/null
while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
"$2" redis stop
rm -rf "$3"
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=ROOT / ".demo", help="where results and the log go")
    out: Path = arguments.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        return demo(out)
    except KeyboardInterrupt:
        return 130


def demo(out: Path) -> int:
    began = time.monotonic()
    data = tempfile.mkdtemp(prefix="minedraft-demo-")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINEDRAFT_")}
    environment |= {name: os.environ[name] for name in ("MINEDRAFT_CACHE_DIR",) if name in os.environ}
    environment["MINEDRAFT_DATA_DIR"] = data

    log = out / "worker.log"
    say(f"starting a private Redis and one worker (its log: {shown(log)}); the first time, the model is built")
    subprocess.run([BIN / "producer", "redis", "start"], env=environment, check=True, stderr=subprocess.DEVNULL)
    with log.open("w") as stream:
        worker = subprocess.Popen(
            [BIN / "worker", "run", "--mode", "psd", "--max-num-seqs", str(ROWS), "--metrics-port", "0"],
            cwd=data,  # where no minedraft.toml is
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # Ctrl-C is for the guard to pass on
        )
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "guard", str(worker.pid), BIN / "producer", data],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return ask(out, worker, log, environment, began)
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        worker.wait()  # reaped here, so that the guard sees it gone
        guard.wait()


def ask(out: Path, worker: subprocess.Popen[bytes], log: Path, environment: dict[str, str], began: float) -> int:
    prompts = PROMPTS.read_text().splitlines()[:ROWS]

    def producer(*command: str, text: str | None = None) -> str:
        return subprocess.run(
            [BIN / "producer", *command], env=environment, input=text, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    job = json.loads(producer("submit", "-", "--name", "demo", "--json", text="\n".join(prompts)))["job_id"]
    say(f"submitted {ROWS} prompts of {shown(PROMPTS)} as job {job}; waiting for the engine to start")
    if not answering(worker, log, job, producer):
        return 1
    subprocess.run([BIN / "producer", "watch", job], env=environment, check=False)
    results = out / "results.jsonl"
    producer("results", job, "-o", str(results), "--order", "input")
    status = json.loads(producer("status", job, "--json"))
    run = all_measured(log)
    show_answers(prompts, results)
    for line in in_words(run) if run else ():
        print(f"demo: {line}")
    answered = status["done"] - status["failed"]
    seconds = status["ended"] - status["started"]
    tokens = status["completion_tokens"]
    print(
        f"demo: {answered}/{ROWS} rows answered, {tokens} tokens in {seconds:.1f} s = {tokens / seconds:.0f} tokens/s "
        f"({time.monotonic() - began:.0f} s with start-up), results in {shown(results)}"
    )
    return 0 if answered == ROWS else 1


def answering(worker: subprocess.Popen[bytes], log: Path, job: str, producer) -> bool:
    """Wait until the worker has taken the job; False, with its last words, when it has ended instead."""
    while json.loads(producer("status", job, "--json"))["state"] == "queued":
        if worker.poll() is not None:
            say(f"the worker ended with exit code {worker.returncode}: {log.read_text().strip().splitlines()[-1:]}")
            return False
        time.sleep(0.5)
    return True


def all_measured(log: Path) -> Measured | None:
    """What the worker measured, once nothing is added any more."""
    address = re.search(r"metrics: (\S+)", log.read_text())
    assert address
    before = None
    while True:
        with urllib.request.urlopen(address[1], timeout=10) as page:
            run = measured(page.read().decode())
        if run == before:
            return run
        before = run
        time.sleep(COUNTED_S)


def show_answers(prompts: list[str], results: Path) -> None:
    with results.open(encoding="utf-8") as lines:
        for prompt, line in zip(prompts, lines, strict=True):
            result = json.loads(line)
            print(f"\n> {json.loads(prompt)['body']['messages'][-1]['content']}")
            if result["error"]:
                print(f"  error: {result['error']['message']}")
                continue
            text = result["response"]["body"]["choices"][0]["message"]["content"]
            wrapped = textwrap.wrap(" ".join(text.split()), width=110)
            more = " [...]" if len(wrapped) > ANSWER_LINES else ""
            print(textwrap.indent("\n".join(wrapped[:ANSWER_LINES]) + more, "  "))
    print()


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
