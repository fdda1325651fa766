#!/bin/sh
# Formatting and lint of Python, of C++ and CUDA, and of the workflow.
set -eu
ruff check .
ruff format --check .
find spdnn tests -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format --dry-run --Werror
snakefmt --check Snakefile workflow
snakemake --lint
