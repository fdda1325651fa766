#!/bin/sh
# make setup CUDA=12|13|auto: CuPy from its lock, for the driver and the devices found here; then one verified layer.
# Arguments: the folder of the environment's programs, and 12, 13 or auto.
set -eu
bin=$1 wanted=$2
cd "$(dirname "$0")/.."
driver=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9][0-9]*\)\..*/\1/p' | head -n 1) || driver=
has() { "$bin/python" -m pip show --quiet "cupy-cuda${1}x" 2>/dev/null; }
case $wanted in
12 | 13) ;;
auto)
    if [ -z "$driver" ]; then
        echo "spdnn: CUDA=auto needs an NVIDIA GPU with its driver, and nvidia-smi tells of none here (CUDA=12 or 13 needs none)" >&2
        exit 1
    fi
    if [ "$driver" -lt 12 ]; then
        echo "spdnn: the driver here is for CUDA $driver, and CuPy needs one for CUDA 12 or 13" >&2
        exit 1
    fi
    # Ten times the lowest compute capability; 0 where nvidia-smi does not know it.
    lowest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        awk -F. '/^ *[0-9]+\.[0-9] *$/ { here = 10 * $1 + $2; if (!low || here < low) low = here } END { print low + 0 }')
    # What is there for CUDA 12 runs with newer drivers too. The compiler of CUDA 13 knows devices from 7.5 on, though
    # its driver still runs older ones.
    wanted=13
    if [ "$driver" -eq 12 ] || { [ "$lowest" -gt 0 ] && [ "$lowest" -lt 75 ]; } || has 12; then
        wanted=12
    fi
    ;;
*)
    echo "spdnn: CUDA=$wanted: it must be 12, 13 or auto" >&2
    exit 1
    ;;
esac
other=$((25 - wanted)) # two CuPys cannot be in one environment
if has $other; then
    "$bin/python" -m pip uninstall --yes --quiet "cupy-cuda${other}x"
fi
size=1.2 quiet=--quiet
if [ $wanted -eq 13 ]; then size=0.9; fi
if has $wanted; then
    echo "CuPy for CUDA $wanted is here; adding what it lacks of envs/cuda$wanted.txt"
else
    echo "adding CuPy for CUDA $wanted from envs/cuda$wanted.txt, a download of about $size GB"
    if [ -t 1 ]; then quiet=; fi
fi
"$bin/python" -m pip install $quiet --disable-pip-version-check --require-hashes -r "envs/cuda$wanted.txt"
if [ -z "$driver" ]; then
    echo "no NVIDIA driver here: nothing was run on a GPU"
else
    "$bin/spdnn" challenge --engine cuda --neurons 1024 --layers 1 --inputs digits
fi
