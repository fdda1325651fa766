#!/bin/sh
# Formatting and lint of Python, of C++ and CUDA, and of the workflow.
set -eu
ruff check .
ruff format --check .
find spdnn tests -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format --dry-run --Werror
snakefmt --check Snakefile workflow
# The workflow names no environment of conda (envs/README.md). Whatever else Snakemake finds is an error.
lints=$(snakemake --lint 2>&1 || true)
others=$(echo "$lints" | grep '^    \* ' | grep -v 'Specify a conda environment or container for each rule' || true)
case $lints in *"Lints for rule report "*) ;; *) others="snakemake --lint did not reach the rules" ;; esac
[ -z "$others" ] || { echo "$lints" "$others" >&2; exit 1; }
