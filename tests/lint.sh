#!/bin/sh
# Formatting and lint of Python and of the workflow.
set -eu
ruff check .
ruff format --check .
snakefmt --check Snakefile workflow
snakemake --lint
