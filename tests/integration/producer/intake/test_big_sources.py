"""Files much larger than what a producer may hold: measured on a process that reads nothing else."""

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from backports import zstd
from pyarrow import parquet

ROWS = 1_000_000
ROW = b'{"prompt": "%07d ' + b"x" * 280 + b'"}\n'

# Not ru_maxrss, which starts with what the process that started this one holds.
_READ = """
import re, sys
from pathlib import Path
from producer.intake.sources import open_source
count = sum(1 for _ in open_source([sys.argv[1]]).lines())
print(count, int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def write_plain(path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(ROW % number for number in range(ROWS))


def write_gzip(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(ROW % number for number in range(ROWS))


def write_zstd(path: Path) -> None:
    with zstd.open(path, "wb") as file:
        file.writelines(ROW % number for number in range(ROWS))


def write_csv(path: Path) -> None:
    with path.with_suffix(".csv").open("w") as file:
        file.write("prompt\n")
        file.writelines(f'"{number}\n{"x" * 280}"\n' for number in range(ROWS))


def write_parquet(path: Path) -> None:
    """All rows in one row group, beside a column that nobody asks for."""
    texts = pa.array([f"{number} {'x' * 280}" for number in range(ROWS)])
    images = pa.array([number.to_bytes(100, "big") for number in range(ROWS)])
    parquet.write_table(pa.table({"image": images, "prompt": texts}), path, row_group_size=ROWS, compression="NONE")


@pytest.mark.full
@pytest.mark.parametrize("write", [write_plain, write_gzip, write_zstd, write_csv, write_parquet])
def test_a_million_rows_in_bounded_memory(tmp_path: Path, write) -> None:
    write(tmp_path / "rows")
    (path,) = tmp_path.iterdir()
    ended = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    count, most = map(int, ended.stdout.split())
    assert count == ROWS
    assert most < 120, f"{most} MiB"  # 20 for Python, 50 for pyarrow
