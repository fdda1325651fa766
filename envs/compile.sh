#!/bin/sh
# Renews the locks from pyproject.toml: sh envs/compile.sh   (needs uv)
set -eu
cd "$(dirname "$0")/.."
for name in run test peers; do
    case $name in
        run) extras="--extra workflow --extra build" ;;
        test) extras="--extra test --extra build --constraint envs/run.txt" ;;
        peers) extras="--extra peers --constraint envs/test.txt" ;;
    esac
    # shellcheck disable=SC2086
    uv pip compile pyproject.toml $extras --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-package spdnn \
        --custom-compile-command "sh envs/compile.sh" -o "envs/$name.txt" --quiet
done
