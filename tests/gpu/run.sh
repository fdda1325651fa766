#!/bin/sh
# A program of `make gpu-check` or `make gpu-records` with a Python that has CuPy: the first argument, which gets the rest.
# VENV: the environment that is set up when it must be; empty: PYTHON as it is.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
if [ -n "${VENV:-}" ]; then
    cuda=auto
    case " $* " in *" --help "* | *" -h "*) cuda= ;; esac
    python="$VENV/bin/python"
    # Set-up ends with a run on the GPU. If that fails, the check says what fails: it needs no more than CuPy.
    "${MAKE:-make}" -s setup CUDA=$cuda || "$python" -c "import cupy"
fi
PYTHONPATH=. exec "$python" "$@"
