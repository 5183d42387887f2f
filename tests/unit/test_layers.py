"""Who may import whom: the producer is light, and the queue, the engines and the two-batch engine do not mix."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


#: Modules that a room may know although the room that they are in is closed to it: what runs in vLLM's processes, too.
EXCEPT = {"worker/minedraft": ("worker.engine.vllm_cpu_worker", "worker.engine.vllm_plugin")}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


def within(module: str, rooms: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in rooms)


@pytest.mark.parametrize(
    ("room", "never"),
    [
        ("producer", ("worker", "arq", "torch", "vllm", "transformers")),
        ("worker/queue", ("vllm", "torch", "worker.engine.vllm", "worker.engine.fake", "worker.models")),
        ("worker/engine", ("redis", "arq", "worker.queue", "worker.service", "worker.settings", "producer.cli")),
        ("worker/models", ("redis", "arq", "vllm", "worker.queue", "worker.engine")),
        # It runs inside vLLM and knows nothing of queues.
        (
            "worker/minedraft",
            ("redis", "arq", "producer", "worker.queue", "worker.service", "worker.settings", "worker.engine"),
        ),
    ],
)
def test_a_room_knows_only_what_it_may(room: str, never: tuple[str, ...]) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        for module in imports(path):
            allowed = within(module, EXCEPT.get(room, ()))
            assert allowed or not within(module, never), f"{path} imports {module}"


def test_nothing_that_answers_rows_knows_the_lab() -> None:
    for path in (ROOT / "worker").rglob("*.py"):
        if path.parent.name != "lab" and path != ROOT / "worker/cli.py":
            assert not [module for module in imports(path) if within(module, ["worker.lab"])], path


def test_strategies_know_numbers_alone() -> None:
    """No scheduler, no rank, no device; but for the command that prints what there is."""
    files = [path for path in (ROOT / "worker/strategies").rglob("*.py") if path.name != "command.py"]
    assert files
    for path in files:
        for module in imports(path):
            known = module.split(".")[0] in (*sys.stdlib_module_names, "numpy")
            assert known or within(module, ["worker.strategies"]), f"{path} imports {module}"


def test_the_list_of_strategies_loads_nothing_heavy() -> None:
    code = "import sys, worker.strategies.command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "vllm", "arq", "transformers"} & set(loaded)


def test_the_producer_loads_nothing_heavy() -> None:
    code = "import sys, producer.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "vllm", "arq", "worker", "numpy", "transformers"} & set(loaded)


def test_no_file_is_long() -> None:
    for path in [*(ROOT / "producer").rglob("*.py"), *(ROOT / "worker").rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 400, path
