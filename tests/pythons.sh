#!/bin/sh
# Tests on every other Python from 3.11 to 3.13 of this machine: those named here, or with the argument `all` the whole
# default set. Each Python has an environment of its own, such as .venv-3.12, from the locks of VENV; 3.14 has none, for it
# lacks wheels of envs/test.txt (suitesparse-graphblas). With CI or SPDNN_NO_SKIPS set, a machine that has no other Python
# fails.
# MAKE, VENV: of the Makefile. PYENV_ROOT: where pyenv keeps Pythons (default: ~/.pyenv).
set -eu
cd "$(dirname "$0")/.."
: "${MAKE:=make}" "${VENV:=.venv}"
# Imports, the command line, compile, infer, records, the readers, one challenge on digits: about a minute each.
fast="tests/test_imports.py tests/test_wings.py tests/test_public_api.py tests/test_examples.py tests/core tests/cli tests/runs/records
    tests/runs/verify tests/engines/test_model.py tests/engines/reductions tests/formats tests/ops/test_public_operations.py"
[ "${1:-}" = all ] && fast=

# The newest Python of version $1 that this machine has: one that is on the path and runs, or one of pyenv's.
newest() {
    pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
    for found in "$(command -v "python$1")" $(ls -d "$pyenv/$1."*/bin/python 2>/dev/null | sort -rV); do
        [ "$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ] && echo "$found" && return
    done
    return 0
}

own=$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
tested=
for version in 3.11 3.12 3.13; do
    [ "$version" != "$own" ] || continue
    python=$(newest "$version")
    if [ -z "$python" ]; then
        echo "Python $version: not on this machine"
        continue
    fi
    echo "Python $version: $python"
    environment="$VENV-$version"
    "$MAKE" -s PYTHON="$python" VENV="$environment" "$environment/.tested" setup
    bin=$(cd "$environment/bin" && pwd)
    PATH="$bin:$PATH" python tests/run.py $fast
    tested="$tested $version"
done
if [ -z "$tested" ] && [ -n "${CI:-}${SPDNN_NO_SKIPS:-}" ]; then
    echo "tests/pythons.sh: no Python from 3.11 to 3.13 but $own is on this machine" >&2
    exit 1
fi
echo "other Pythons tested:${tested:- none}"
