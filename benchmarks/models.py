"""The models with sparse arithmetic against the same models with dense: verified, then timed alternately.

    python benchmarks/models.py [transformer mobilenet] [--preset paper|medium|small] [--rounds R] [--threads T]
                                [--against ARITHMETIC ...] [--images N] [--widths W ...] [--equal]
                                [--blas CORE] [--memory] [--stored]

Each arithmetic's logits are compared with the sparse ones before any is timed, and every timed run must give the bits
of the first. Programs take turns; a ratio is the median over turns of the other's time over the sparse one's, with its
95 % interval, on the wall and in processor seconds, which a busy machine disturbs less. With torch installed, the same
models in torch take part: attention by scaled_dot_product_attention, convolutions by conv2d.

The Transformer's `dense` is the same model; `causal` and `torch causal` attend to every earlier position, as the dense
model that the paper compares with, and are verified where the two models agree: on the tokens within the band.

--memory      the peak (VmHWM) of a process that does one prefill, for each arithmetic; --stored: of the one that keeps
              all scores too, which takes the paper's 10 GB
--widths      of MobileNet; --equal: dense models of the widths that the paper found as accurate, not of the same width
--blas CORE   the kernels that NumPy's OpenBLAS takes (OPENBLAS_CORETYPE). By itself it may take AVX2 ones on processors
              that have AVX-512; SkylakeX is then up to twice as fast. Every dense product gains, those of the sparse
              model too.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch_models

from spdnn.core.statistics import ratios
from spdnn.engines.memory import kernel_bytes
from spdnn.ops.backends import thread_count
from spdnn.ops.models import mobilenet, transformer
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference

BAR = 1.2  # of dense over sparse time
# Sparse: dense, which the paper's code gives one accuracy (72.9 and 72.7 %, 73.8 both, 74.9 and 74.8).
PAPER_WIDTHS = {1.3: 1.0, 1.5: 1.2, 1.8: 1.4}
PAPER_MEMORY = 9.88 / 0.77  # GB, dense over sparse, of the paper's whole processes
# Threads that wait for their library's next call leave the cores to the next program: read when libraries are loaded.
WAITS = {"KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "18"}
MODELS = ("transformer", "mobilenet")
Run = Callable[[], np.ndarray]


class Program:
    """One way to compute logits, and what was measured of it.

    Args:
        run: gives the logits; parts: gives, after a run, the seconds of each of its parts.
    """

    def __init__(self, run: Run, parts: Callable[[], dict[str, float]] = dict):
        self.run, self.parts = run, parts
        self.first: np.ndarray | None = None
        self.wall: list[float] = []
        self.busy: list[float] = []
        self.took: list[dict[str, float]] = []

    def once(self) -> np.ndarray:
        """The logits of a run that is not timed; settings are found in it, buffers made."""
        self.first = self.run()
        return self.first

    def timed(self, name: str) -> None:
        """Raises SystemExit when the bits are not those of the first run."""
        wall, busy = time.perf_counter(), time.process_time()
        result = self.run()
        self.wall.append(time.perf_counter() - wall)
        self.busy.append(time.process_time() - busy)
        self.took.append(self.parts())
        if not np.array_equal(result, self.first):
            sys.exit(f"{name}: other logits than before")


def compare(programs: dict[str, Program], rounds: int, units: int, what: str) -> None:
    """Time all in turn; print what each gave, where its time went, and its ratio to the first."""
    for _ in range(rounds):
        for name, program in programs.items():
            program.timed(name)
    for name, program in programs.items():
        median = float(np.median(program.wall))
        parts = {part: np.median([seconds_of[part] for seconds_of in program.took]) for part in program.took[0]}
        shares = ", ".join(f"{part} {seconds:.3f}" for part, seconds in parts.items())
        print(f"  {name:<14}{median:8.3f} s  {units / median:10,.0f} {what}/s  {shares}")
    (ours, base), *others = programs.items()
    for name, program in others:
        wall, busy = ratios(base.wall, program.wall), ratios(base.busy, program.busy)
        verdict = "reached" if wall.median >= BAR else "missed"
        print(
            f"  {name} / {ours}: {wall.median:.2f} ({wall.low:.2f} to {wall.high:.2f}); processor seconds "
            f"{busy.median:.2f} ({busy.low:.2f} to {busy.high:.2f}); {BAR} {verdict}"
        )


def verified(name: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Raises SystemExit when the logits are not the wanted ones."""
    error = difference(found, wanted)
    if not error < ARITHMETIC_TOLERANCE:
        sys.exit(f"{name}: logits differ by {error:.1e} of the largest; {ARITHMETIC_TOLERANCE:.0e} is allowed")
    print(f"  verified: {name} differs by {error:.1e} of the largest logit")


def transformer_programs(options) -> None:
    config = transformer.PRESETS[options.preset]
    model = transformer.Transformer(config)
    tokens = np.random.default_rng(1).integers(0, config.vocabulary, config.sequence)
    print(f"transformer {options.preset}: {config}\n  mask {model.mask}, {model.mask.sparsity:.4f} sparse")
    programs = {
        name: Program(lambda name=name: model.prefill(tokens, name, options.threads), lambda: model.seconds)
        for name in ("sparse", *options.against)
    }
    ours = programs["sparse"].once()
    for name in options.against:
        alike = config.band if name == "causal" else config.sequence  # tokens, of which the two models are one
        verified(f"{name}, the first {alike} tokens", programs[name].once()[:alike], ours[:alike])
    if torch_models.missing() is None:
        decoder = torch_models.Decoder(config, model.weights, options.threads)
        programs["torch causal"] = Program(lambda: decoder.prefill(tokens))
        verified("torch causal", programs["torch causal"].once(), model.prefill(tokens, "causal", options.threads))
    compare(programs, options.rounds, config.sequence, "tokens")
    for name in transformer.ARITHMETICS:
        megabytes = model.attention_bytes(name, options.threads) / 1e6
        print(
            f"  {name:<10} {model.flops(name) / 1e9:8,.0f} GFLOP; attention holds {megabytes:,.1f} MB beside "
            f"{model.weight_bytes(name) / 1e6:,.0f} MB of weights"
        )


def mobilenet_programs(options, width: float) -> None:
    config = dataclasses.replace(mobilenet.PRESETS[options.preset], width=width)
    model = mobilenet.MobileNet(config)
    shape = (options.images, mobilenet.COLOURS, config.size, config.size)
    images = np.random.default_rng(1).standard_normal(shape, np.float32)
    print(f"mobilenet {options.images} images, {config}")
    programs = {
        name: Program(lambda name=name: model.images(images, name, options.threads), lambda: model.seconds)
        for name in mobilenet.ARITHMETICS
    }
    verified("dense", programs["dense"].once(), programs["sparse"].once())
    if torch_models.missing() is None:
        peer = torch_models.ConvNet(model, options.threads)
        programs["torch"] = Program(lambda: peer.images(images))
        verified("torch", programs["torch"].once(), programs["sparse"].first)
    if options.equal:
        narrow = dataclasses.replace(config, width=PAPER_WIDTHS[width])
        other = mobilenet.MobileNet(narrow)
        name = f"dense {narrow.width}"
        programs[name] = Program(lambda: other.images(images, "dense", options.threads), lambda: other.seconds)
        verified(f"sparse {narrow.width}", other.images(images, "sparse", options.threads), programs[name].once())
    compare(programs, options.rounds, options.images, "images")
    sparse, dense = (model.weight_bytes(name) / 1e6 for name in mobilenet.ARITHMETICS)
    print(
        f"  weights {sparse:.2f} MB sparse, {dense:.2f} dense: {dense / sparse:.2f} times; "
        f"{model.flops('sparse') / 1e9:.3f} and {model.flops('dense') / 1e9:.3f} GFLOP an image"
    )


def peak(options) -> None:
    """Print what this process holds before a prefill, and its peak in it, in bytes."""
    config = transformer.PRESETS[options.preset]
    model = transformer.Transformer(config)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
        stream.write("5")  # the peak counts from here
    before = kernel_bytes("/proc/self/status", "VmRSS")
    model.prefill(np.zeros(config.sequence, int), options.peak, options.threads)
    print(before, kernel_bytes("/proc/self/status", "VmHWM"))


def memory(options) -> None:
    """The peaks of processes of their own."""
    found = {}
    for name in transformer.ARITHMETICS:
        if name == "stored" and not options.stored:
            continue
        command = [sys.executable, __file__, "--preset", options.preset, "--peak", name]
        environment = {**os.environ, "SPDNN_TUNING": "off"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        before, found[name] = (int(number) / 1e9 for number in done.stdout.split())
        print(
            f"  {name:<10} peak {found[name]:.2f} GB, {found[name] - before:.2f} GB of them in the prefill", flush=True
        )
    if options.stored:
        ratios_of_memory = ", ".join(
            f"stored / {name} {found['stored'] / found[name]:.1f}" for name in ("sparse", "unfused")
        )
        print(f"  {ratios_of_memory}; the paper has {PAPER_MEMORY:.1f} (9.88 and 0.77 GB)")


def blas() -> str:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "unknown (threadpoolctl is not installed)"
    found = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    return ", ".join(
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}" for library in found
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", choices=[*MODELS, []], default=[])
    options.add_argument("--preset", choices=list(transformer.PRESETS), default="medium")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--threads", type=int, default=thread_count(None))
    options.add_argument(
        "--against", nargs="+", choices=transformer.ARITHMETICS, default=["unfused", "dense", "causal"]
    )
    options.add_argument("--images", type=int, default=8)
    options.add_argument("--widths", type=float, nargs="+")
    options.add_argument("--equal", action="store_true")
    options.add_argument("--blas", metavar="CORE")
    options.add_argument("--memory", action="store_true")
    options.add_argument("--stored", action="store_true")
    options.add_argument("--peak", help=argparse.SUPPRESS)
    args = options.parse_args()
    wanted = WAITS | ({"OPENBLAS_CORETYPE": args.blas} if args.blas else {})
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if args.peak:
        peak(args)
        return
    print(f"{args.threads} threads; BLAS {blas()}")
    models = args.models or MODELS
    if "transformer" in models:
        (memory if args.memory else transformer_programs)(args)
    if "mobilenet" in models and not args.memory:
        for width in args.widths or [mobilenet.PRESETS[args.preset].width]:
            mobilenet_programs(args, width)


if __name__ == "__main__":
    main()
