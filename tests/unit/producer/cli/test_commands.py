"""The table of commands, and how soon its help is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from producer.cli import app
from producer.cli.commands import COMMANDS

#: What no command needs before it runs, and `producer --help` never.
HEAVY = ("redis", "rich.console", "pydantic", "asyncio", "pyarrow", "torch", "vllm")


def test_the_help_of_the_program() -> None:
    said = CliRunner().invoke(app, ["--help"])
    assert said.exit_code == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in said.output
        assert entry.summary in said.output  # not cut off
    assert "Exit codes: 0 fine" in said.output
    assert "--install-completion" in said.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command(name: str) -> None:
    said = CliRunner().invoke(app, [name, "--help"])
    assert said.exit_code == 0, said.output
    assert f" {name} [OPTIONS]" in said.output
    if name != "redis":  # a group of its own
        for example in COMMANDS[name].examples:
            assert f"    {example}\n" in said.output


def test_a_command_that_is_mistyped() -> None:
    said = CliRunner().invoke(app, ["wacth"])
    assert said.exit_code == 2
    assert "Did you mean 'watch'?" in said.output


def test_help_loads_nothing_heavy() -> None:
    load = "import sys; from producer.cli import app; app(['--help'], standalone_mode=False)"
    script = f"{load}; print([name for name in {HEAVY} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_help_is_there_at_once() -> None:
    """In less than 0.3 s on a core of its own: what the processor does for it, whoever else is at work."""
    program = Path(sys.executable).parent / "producer"
    assert min(_cpu_seconds([str(program), "--help"]) for _ in range(5)) < 0.3


def _cpu_seconds(command: list[str]) -> float:
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
