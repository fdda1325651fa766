"""Strong scaling of the twelve networks on 1 to 768 H100, predicted from records of one: none of it was measured.

    python benchmarks/predicted_scaling.py [--json FILE] [--svg FILE]

Committed are what it prints, results/measured/one-h100/predicted_scaling.txt, and docs/predicted-scaling.svg.

The cost model is that of published_scaling.py, which compares it with the published scaling on 768 V100. Its rates are
fitted to our records of one H100 with dead inputs alone, at three depths of a width. What a layer takes whatever it
computes is measured: with all reductions one row is left, and the depths differ by layers of one row. Weights stay on
each device, for the largest network has 4 % of its memory; so no network needs model parallelism. Inputs have a static
partition in their order; the categories are gathered over a network of InfiniBand NDR's latency and rate.

Loading is what the run on one device did before its first inference, on 16 cores: start-up, inputs, reading and laying
out all layers, as its record has them. No partition of inputs makes the layers fewer, so several devices take as long.
A network on several H100 that was measured has that time instead, marked.
"""

import argparse
import json
import statistics
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import published_scaling as published

from spdnn.core import challenge
from spdnn.core.files import write_text
from spdnn.engines.costs.costs import DeviceCosts, MessageCosts
from spdnn.engines.costs.official import official_shares, official_work
from spdnn.engines.costs.prediction import predict
from spdnn.runs.records.files import read_all
from spdnn.runs.records.run_record import RunRecord

ROOT = Path(__file__).resolve().parents[1]
GPU = "NVIDIA H100 80GB HBM3"
DEVICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768)
PER_NODE = 8  # devices of a node
MEMORY_BYTES = 80e9
TILES = (1, 4, 8, 16, 32)  # inputs of a block of the persistent kernel, and of a tile
NETWORK = MessageCosts(2e-6, 50e9)  # latency and bytes a second of 400 Gb/s


@dataclass(frozen=True)
class Row:
    """One network on so many devices.

    Attributes:
        seconds: of inference, predicted; measured_seconds: of a record on as many; None: there is none.
        loading_seconds: before it, of the record of one device.
        efficiency: of the inference, against one device.
    """

    neurons: int
    layers: int
    devices: int
    seconds: float
    loading_seconds: float
    efficiency: float
    measured_seconds: float | None

    @property
    def edges_per_second(self) -> float:
        edges = challenge.NONZEROS_PER_NEURON * self.neurons * self.layers
        return challenge.edges_per_second(challenge.INPUTS, edges, self.measured_seconds or self.seconds)


def measured() -> dict[str, dict[tuple[int, int, int], RunRecord]]:
    """Records of H100 by their reductions, and by neurons, layers and devices."""
    runs, _ = read_all(sorted(ROOT.glob("results/measured/*h100*/networks.jsonl")))
    found: dict[str, dict] = {}
    for run in runs:
        if run.engine.name == "cuda" and run.problem.official and (run.environment.gpu or "").startswith(GPU):
            of = found.setdefault("+".join(run.reductions.requested), {})
            of[run.problem.neurons, run.problem.layers, run.ranks] = run
    return found


def _latency(figures: dict[tuple[int, int, int], float], neurons: int) -> float:
    """Seconds of a layer of one row, from those of the two largest depths with all reductions."""
    *_, some, most = challenge.DEPTHS
    return (figures[neurons, most, 1] - figures[neurons, some, 1]) / (most - some)


def _loading(run: RunRecord) -> float:
    """Seconds before the first inference; of a record without a time to solution, of reading and preparing alone."""
    if told := run.time_to_solution:
        return told.startup + told.inputs + told.network + told.prepare
    return statistics.median(run.read_seconds) + statistics.median(run.prepare_seconds)


def scaling() -> list[Row]:
    """All twelve networks on DEVICES."""
    records = measured()
    figures, reduced = (
        {key: statistics.median(run.inference_seconds) for key, run in records[which].items()}
        for which in ("dead", "dead+inputs+neurons")
    )
    device, rows = DeviceCosts((0.0,), tiles=TILES, memory_bytes=MEMORY_BYTES * PER_NODE), []
    for neurons, layers in ((neurons, layers) for neurons in challenge.WIDTHS for layers in challenge.DEPTHS):
        fixed, first, deeper = published.on_one(device, figures, neurons, _latency(reduced, neurons))
        rates = (first,) * published.first_block(neurons) + (deeper,)
        rated = replace(device, seconds_per_layer=fixed, seconds_per_edge=rates)
        work, loading = official_work(neurons, layers), _loading(records["dead"][neurons, layers, 1])
        single = None
        for devices in DEVICES:
            shares = official_shares(work, neurons, devices, "static", distinct=True)
            seconds = predict(work, rated, NETWORK, devices, "static", shares=shares).seconds
            single = single or seconds
            real = figures.get((neurons, layers, devices))
            rows.append(Row(neurons, layers, devices, seconds, loading, single / devices / seconds, real))
    return rows


def _show(rows: list[Row]) -> None:
    told = "seconds of inference, predicted (*: measured), and of loading, measured on one"
    print(f"{GPU}, {PER_NODE} a node, dead inputs alone; {told}")
    print(f"{'network':>11}" + "".join(f"{devices:>10}" for devices in DEVICES) + f"{'loading':>9} {'best':>16}")
    for (neurons, layers), several in groupby(rows, key=lambda row: (row.neurons, row.layers)):
        several = list(several)
        times = "".join(
            f"{row.measured_seconds:>9.3g}*" if row.measured_seconds else f"{row.seconds:>9.3g} " for row in several
        )
        best = max(several, key=lambda row: row.edges_per_second)
        top = f"{best.edges_per_second / 1e12:.0f} TeraEdges/s on {best.devices}"
        print(f"{f'{neurons}-{layers}':>11}{times}{several[0].loading_seconds:>9.3g} {top:>16}")
    fitted = [abs(row.seconds / row.measured_seconds - 1) for row in rows if row.devices == 1 and row.measured_seconds]
    print(f"fitted: 12 figures of one device, error: median {statistics.median(fitted):.1%}, worst {max(fitted):.1%}")


def figure(rows: list[Row], path: str) -> None:
    """TeraEdges/s against devices, one line a width at the largest depth."""
    import matplotlib
    import seaborn
    from matplotlib.figure import Figure

    settings = {**seaborn.axes_style("ticks"), "svg.fonttype": "none", "svg.hashsalt": "spdnn", "axes.grid": True}
    with matplotlib.rc_context(settings):
        plot = Figure(figsize=(8, 3.6), layout="constrained")
        axes = plot.subplots()
        for neurons in challenge.WIDTHS:
            some = [row for row in rows if (row.neurons, row.layers) == (neurons, challenge.DEPTHS[-1])]
            rates = [row.edges_per_second / 1e12 for row in some]
            axes.loglog([row.devices for row in some], rates, marker=".", label=f"{neurons} × {challenge.DEPTHS[-1]}")
        axes.set_yticks(ticks := [200, 500, 1000, 2000, 5000], [f"{tick:,}" for tick in ticks])
        axes.set_xticks(some := [1, 2, 8, 32, 128, 768], list(map(str, some)))
        axes.minorticks_off()
        axes.set(xlabel="H100, 8 a node, predicted from records of one", ylabel="TeraEdges/s, dead inputs alone")
        axes.legend(frameon=False)
        seaborn.despine(plot)
        plot.savefig(path, metadata={"Date": None, "Creator": None})


def main(words: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE", help="write all figures")
    options.add_argument("--svg", metavar="FILE", help="draw the largest depths")
    args = options.parse_args(words)
    rows = scaling()
    _show(rows)
    if args.json:
        write_text(args.json, json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if args.svg:
        figure(rows, args.svg)


if __name__ == "__main__":
    main()
