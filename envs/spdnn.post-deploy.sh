#!/bin/sh
# Run by Snakemake inside the new environment, from the root of the checkout.
set -eu
python -m pip install --require-hashes -r envs/run.txt
python -m pip install --no-deps --no-build-isolation .
