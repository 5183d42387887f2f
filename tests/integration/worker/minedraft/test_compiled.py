"""Models that are compiled, in both kinds of rank: the same texts as plain decoding without a compiler gives."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from integration.worker.minedraft.both_engines import SERVED, Rings, ask, ask_plain, differences, ranks, running
from integration.worker.minedraft.cases import chunked, rows

from producer.record.models import Answer, Row
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft import names
from worker.minedraft.measures import summary

FLAGS = "--max-model-len 512 --max-num-batched-tokens 128"
CXX = os.environ.get("CXX", "g++")

#: Compiling two models takes a minute and more.
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which(CXX) is None, reason=f"compiling needs a C++ compiler, and there is no {CXX}"),
]


async def test_compiled_ranks_answer_what_plain_decoding_answers(
    tiny_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = rows(8, max_tokens=60) + chunked(4)
    plain = VllmOptions(str(tiny_pair[0]), SERVED, engine_args=FLAGS)
    async with running(plain) as engine:
        assert not any(map(kernels, psutil.Process().children(recursive=True)))
        expected = await ask_plain(engine, asked)

    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "vllm"))  # nothing has been compiled yet
    two_batches = VllmOptions(
        str(tiny_pair[0]),
        SERVED,
        "psd",
        str(tiny_pair[1]),
        num_speculative_tokens=3,
        max_num_seqs=8,
        engine_args=f"{FLAGS} --no-enforce-eager",
    )
    async with running(two_batches) as engine:
        compiled = {name: kernels(rank) for name, rank in ranks().items()}
        acceptance, answers = await answered(engine, asked)
        again = {name: kernels(rank) for name, rank in ranks().items()}
    for rank in (names.DRAFTER, names.verifier(0)):
        assert compiled[rank], f"{rank} has loaded no compiled code"
        assert all(path.startswith(str(tmp_path)) for path in compiled[rank])
    assert again == compiled, "rows had to wait for the compiler"
    assert differences(expected, answers) == []
    assert acceptance > 0.4


async def answered(engine: VllmEngine, asked: Sequence[Row]) -> tuple[float, list[Answer]]:
    """The share of the drafts that were accepted, and the answers."""
    rings = Rings(engine)
    answers = await ask(engine, asked)
    acceptance = summary(*rings.read()).acceptance
    assert acceptance is not None
    return acceptance, answers


def kernels(process: psutil.Process) -> set[str]:
    """What a process has loaded of what PyTorch's compiler made."""
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    return set(re.findall(r"\S*inductor\S*\.so", maps))
