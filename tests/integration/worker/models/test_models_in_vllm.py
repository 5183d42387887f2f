import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from worker.lab.tiny import build_tiny_model

CHATS = ["What is the capital of France?", "Name three primary colors.", "Hi \x04 😀 日本 1234"]
VLLM_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
# In a process of its own: vLLM's engine would outlive the test in this one.
GENERATE = """
    import json, sys
    from vllm import LLM, SamplingParams

    if __name__ == "__main__":
        llm = LLM(model=sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=512)
        defaults = llm.get_default_sampling_params()
        chats = [[{"role": "user", "content": text}] for text in json.loads(sys.argv[2])]
        answers = llm.chat(chats, SamplingParams(temperature=0, max_tokens=32), use_tqdm=False)
        report = {
            "texts": [answer.outputs[0].text for answer in answers],
            "reasons": [answer.outputs[0].finish_reason for answer in answers],
            "neutral": defaults == SamplingParams(),
        }
        print("\\nREPORT", json.dumps(report))
"""


def generate(model: Path, tmp_path: Path) -> dict:
    script = tmp_path / "generate.py"  # a file: vLLM spawns processes that import it
    script.write_text(textwrap.dedent(GENERATE))
    done = subprocess.run(
        [sys.executable, script, model, json.dumps(CHATS)],
        env=os.environ | VLLM_ENV,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    reports = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    assert reports, done.stderr[-4000:]
    return json.loads(reports[0].removeprefix("REPORT "))


@pytest.mark.full
def test_the_embedded_model(fresh_model: Path, tmp_path: Path) -> None:
    report = generate(fresh_model, tmp_path)
    assert "Paris" in report["texts"][0]
    assert "blue" in report["texts"][1].lower()
    assert report["reasons"][0] == "stop"
    assert report["neutral"]


@pytest.mark.full  # every other test with vLLM loads it, too
def test_the_tiny_model(tmp_path: Path) -> None:
    report = generate(build_tiny_model(tmp_path / "tiny"), tmp_path)
    assert len(set(report["texts"])) == len(CHATS)
    assert all(report["texts"])
    assert report["neutral"]
