#!/bin/sh
# make gpu-check: tests/gpu/check.py with a Python that has CuPy. Arguments go to it.
# VENV: the environment that is set up when it must be; empty: PYTHON as it is.
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${VENV:-}" ]; then
    PYTHONPATH=. exec "${PYTHON:-python3}" tests/gpu/check.py "$@"
fi
cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9][0-9]*\)\..*/\1/p' | head -n 1) || cuda=
if [ -z "$cuda" ]; then
    echo "spdnn: make gpu-check needs an NVIDIA GPU with its driver, and nvidia-smi tells of none here" >&2
    exit 1
fi
if [ "$cuda" -lt 12 ]; then
    echo "spdnn: the driver here is for CUDA $cuda, and CuPy needs one for CUDA 12 or 13" >&2
    exit 1
fi
"${MAKE:-make}" -s setup
python="$VENV/bin/python"
# Ten times the lowest compute capability; 0 where nvidia-smi does not know it.
lowest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    awk -F. '/^ *[0-9]+\.[0-9] *$/ { here = 10 * $1 + $2; if (!low || here < low) low = here } END { print low + 0 }')
# What is there for CUDA 12 runs with newer drivers too, and two CuPys cannot be in one environment. The compiler of
# CUDA 13 knows devices from 7.5 on, though its driver still runs older ones.
extra=cuda13
if [ "$lowest" -gt 0 ] && [ "$lowest" -lt 75 ] || [ "$cuda" -eq 12 ]; then
    extra=cuda12
    if "$python" -m pip show --quiet cupy-cuda13x 2>/dev/null; then
        "$python" -m pip uninstall --yes --quiet cupy-cuda13x
    fi
elif "$python" -m pip show --quiet cupy-cuda12x 2>/dev/null; then
    extra=cuda12
fi
"$python" - "$extra" <<'END' | xargs "$python" -m pip install --quiet --disable-pip-version-check
import sys, tomllib

with open("pyproject.toml", "rb") as stream:
    print(*tomllib.load(stream)["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
END
PYTHONPATH=. exec "$python" tests/gpu/check.py "$@"
