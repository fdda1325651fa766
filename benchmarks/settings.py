"""One network with several settings of the engine, in turn, each verified: ratios of their times with intervals.

    python benchmarks/settings.py --network unstructured --neurons 4096 --layers 24 --count 6000 --reductions none all
    python benchmarks/settings.py --neurons 16384 --layers 120 --inputs mnist --reductions dead --threads 2 1

The first setting is the one that others are set against. Sessions stay open, runs take turns, and a ratio is the median
over rounds of (this setting's seconds / the first one's in the same round), so that a busy machine slows all alike.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

from spdnn.core.resources import usable_cores
from spdnn.core.statistics import ratios
from spdnn.engines.base import Options
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.unstructured import Unstructured
from spdnn.runs import measure
from spdnn.runs.load import load_named_inputs
from spdnn.runs.verify.judging import judge


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--network", choices=["radixnet", "unstructured"], default="radixnet")
    options.add_argument("--neurons", type=int, required=True)
    options.add_argument("--layers", type=int, required=True)
    options.add_argument("--inputs", choices=["digits", "mnist"], default="digits")
    options.add_argument("--mnist", help="the MNIST training images")
    options.add_argument("--count", type=int, help="inputs (default: all 60,000)")
    options.add_argument("--engines", nargs="+", default=["cpu"])
    options.add_argument("--reductions", nargs="+", default=["none", "all"])
    options.add_argument("--threads", nargs="+", type=int, default=[usable_cores()])
    options.add_argument("--memory", type=int, help="bytes for each setting")
    options.add_argument("--rounds", type=int, default=7)
    args = options.parse_args()
    kind = RadixNet if args.network == "radixnet" else Unstructured
    network = kind(args.neurons, args.layers)
    inputs = load_named_inputs(args.inputs, args.neurons, args.count, args.mnist)
    sessions, samples = {}, {}
    for setting in itertools.product(args.engines, args.reductions, args.threads):
        name, reductions, threads = setting
        runner = engine(name)
        prepared = runner.prepare(network, parse_reductions(reductions, runner.offers))
        sessions[setting], samples[setting] = runner.open(prepared, inputs, Options(threads, args.memory)), []
    for setting, session in sessions.items():
        verdict = judge(network, inputs, session.run())
        if not verdict.passed:
            raise SystemExit(f"{setting}: the verdict is fail ({'; '.join(verdict.reasons)})")
    for _ in range(args.rounds):
        for setting, session in sessions.items():
            samples[setting].append(measure.time_call(session.run)[1])
    first = next(iter(samples.values()))
    print(f"{args.network} {args.neurons} x {args.layers}, {inputs.count} {args.inputs} inputs, all verified")
    for (name, reductions, threads), seconds in samples.items():
        ratio = ratios(first, seconds)
        print(
            f"{name:<8} {reductions:<12} {threads} threads  {statistics.median(seconds):9.4f} s  "
            f"{ratio.median:8.3f} of the first ({ratio.low:.3f} to {ratio.high:.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
