"""The Python API as its pages show it: the example and the README's programs run, and Ctrl-C ends what waits."""

import json
import re
import signal
import subprocess
import sys

import pytest
from shell import ROOT, Shell, lines

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "producer" / "README.md").read_text(), re.DOTALL)

WAITING = """
from producer import SyncClient
with SyncClient() as client:
    job = client.submit("rows.jsonl")
    print(job.id, flush=True)
    {what}
"""


def test_the_example(shell: Shell) -> None:
    shell.fake("--tokens-per-row 4")
    ended = shell.run(sys.executable, ROOT / "ops" / "examples" / "api.py")
    assert ended.returncode == 0, ended.stderr
    *answers, last = ended.stdout.splitlines()
    assert sorted(answer.split(" -> ")[0] for answer in answers) == ["sea", "sky", "sun"]
    assert all(len(answer.split(" -> ")[1].split()) == 4 for answer in answers)
    assert re.fullmatch(r"job \w+ is completed: 3 rows, 12 tokens", last)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_of_the_readme(shell: Shell, program: str) -> None:
    (shell.folder / "rows.jsonl").write_text(lines(3))
    shell.fake("--tokens-per-row 4")
    ended = shell.run(sys.executable, "-c", program)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 4
    assert "completed" in ended.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "what", ["job.wait()", "list(job.results())", "client.submit(iter(lambda: {'prompt': 'x'}, None))"]
)
def test_ctrl_c_ends_what_waits_and_not_the_job(shell: Shell, what: str) -> None:
    (shell.folder / "rows.jsonl").write_text(lines(3))
    program = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(what=what)],
        env=shell.environment,
        cwd=shell.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout
    job = program.stdout.readline().strip()
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(1)
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=15)
    assert program.returncode == -signal.SIGINT
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert [each["job_id"] for each in json.loads(shell.producer("list", "--json"))] == [job]
