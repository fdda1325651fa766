#!/bin/sh
# Run by Snakemake inside the new environment; SPDNN_SOURCE is the checkout that the workflow came from.
set -eu
cd "$SPDNN_SOURCE"
python -m pip install --require-hashes -r envs/run.txt
python -m pip install --no-deps --no-build-isolation .
