"""What a run prints at its end, and the outputs that it writes besides its record."""

import sys
from typing import BinaryIO

import numpy as np

from spdnn.cli.terminal import colour_text
from spdnn.core import challenge
from spdnn.core.files import replacing, reserve
from spdnn.core.request import RunRequest
from spdnn.core.result import Result
from spdnn.core.shown import plural, unit_of_rate
from spdnn.runs.records.files import write_result, write_samples
from spdnn.runs.records.run_record import Measurement, busy_part
from spdnn.runs.records.verdict import Verdict

ROWS_BYTES = 1 << 24  # of last rows that are written at a time


def show(request: RunRequest, measurement: Measurement, result: Result, verdict: Verdict | None) -> None:
    """Print the active inputs, whether the output passed verification, and then times and rates."""
    print(f"active      {result.categories.size:,} of {result.inputs:,} inputs after the last layer")
    if (runs := len(measurement.inference_seconds)) < request.repeats:
        sentence = f"{runs} of {request.repeats} repeats: the time limit allows no more"
        print(f"spdnn: warning: {sentence}", file=sys.stderr)
    if verdict is None:
        print("verified    no (--record run.json verifies and writes a record; --verify all verifies alone)")
        return
    truth = verdict.truth
    source = {"oracle": "a float64 reference", "official": f"the {truth.source}"}.get(truth.kind, truth.source)
    against = f"{truth.checked:,} of {truth.inputs:,} inputs compared with {source}; {verdict.values.rule}"
    if verdict.parts and verdict.parts.layers:
        against += f"; every output of {verdict.parts.described}"
    passed = colour_text("pass", "good") if verdict.passed else colour_text("FAIL", "bad")
    print(f"verified    {passed}: {against}")
    if not verdict.passed:
        return
    if request.memory and measurement.peak_memory_bytes > request.memory:
        message = (
            f"{measurement.peak_memory_bytes:,} bytes were held at the peak, more than --memory {request.memory:,}"
        )
        print(f"spdnn: warning: {message}: reading files took more than the run", file=sys.stderr)
    if part := busy_part(measurement):
        others = f"other work took {100 * part:.0f} % of its {measurement.environment.cores} cores"
        tried = f", in the quietest of {1 + len(measurement.passed_over)} attempts" if measurement.passed_over else ""
        print(f"machine     BUSY: {others}{tried}; times may be too long (--repeat-if-busy 3 measures again)")
    print(f"solution    {measurement.time_to_solution.said}")
    if (read := measurement.layers_read_rate(request)) is not None:
        spent, (scale, unit) = measurement.layers_read_seconds(request), unit_of_rate(read)
        print(f"read        {spent:.4f} s for the layers, {read / scale:.4g} {unit}, each edge once")
    seconds = float(np.median(measurement.inference_seconds))
    rate = challenge.edges_per_second(result.inputs, measurement.problem.edges, seconds)
    print(
        f"inference   {seconds:.4f} s, {f'median of {runs}' if runs > 1 else 'one run'} ({measurement.span}; "
        f"reductions: {', '.join(measurement.reductions.requested) or 'none'}; {_workers(measurement)})"
    )
    scale, unit = unit_of_rate(rate)
    computed = measurement.result.edges_needed / seconds / scale
    print(f"rate        {rate / scale:.4g} {unit}, skipped work included; {computed:.3g} {unit} really computed")


def _workers(measurement: Measurement) -> str:
    threads, ranked = plural(measurement.threads, "thread"), measurement.distribution
    if measurement.ranks == 1:
        return threads
    balance = f"imbalance {ranked.imbalance.edges:.3f} in edges; {ranked.told}"
    return f"{measurement.ranks} ranks of {threads}, {ranked.partition}; {balance}"


def write_outputs(args, measurement: Measurement, result: Result) -> None:
    """Write the files that --categories, --result, --samples and --values name."""
    from spdnn.core.categories import write_categories

    if args.categories:
        write_categories(args.categories, result.categories)
    if args.result:
        write_result(args.result, result)
    if args.samples:
        write_samples(args.samples, measurement)
    if not args.values:
        return
    with replacing(args.values) as temporary, open(temporary, "wb") as stream:
        if args.top:
            neurons, values = result.top(args.top)
            np.savez(stream, neurons=neurons, values=values)
        else:
            _write_rows(stream, result)


def _write_rows(stream: BinaryIO, result: Result) -> None:
    """All last rows as .npy; written and not mapped, so that a full disk is an error and no signal."""
    form = {"descr": "<f4", "fortran_order": False, "shape": (result.inputs, result.outputs)}
    np.lib.format.write_array_header_1_0(stream, form)
    reserve(stream, stream.tell() + 4 * result.inputs * result.outputs)
    step = max(1, ROWS_BYTES // (4 * result.outputs))
    for start in range(0, result.inputs, step):
        stream.write(result.rows(start, min(start + step, result.inputs)).data)
