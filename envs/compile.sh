#!/bin/sh
# Renews the locks from pyproject.toml: sh envs/compile.sh   (needs uv)
set -eu
cd "$(dirname "$0")/.."
compile() { # what it is made from, the lock, extras and constraints
    from=$1 to=$2
    shift 2
    uv pip compile "$from" "$@" --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-package spdnn \
        --custom-compile-command "sh envs/compile.sh" -o "envs/$to.txt" --quiet
}
compile pyproject.toml run --extra workflow --extra build
compile pyproject.toml test --extra test --extra build --constraint envs/run.txt
compile pyproject.toml torch --extra test-torch --extra build --constraint envs/run.txt
compile pyproject.toml peers --extra peers --constraint envs/test.txt
compile pyproject.toml cuda12 --extra cuda12 --constraint envs/run.txt
compile pyproject.toml cuda13 --extra cuda13 --constraint envs/run.txt
compile envs/nvrtc13.in nvrtc13
compile envs/fuzz.in fuzz
compile envs/docs.in docs --constraint envs/run.txt
compile envs/wheel.in wheel --constraint envs/run.txt
