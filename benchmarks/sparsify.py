"""PyTorch models through spdnn.torch.sparsify beside the same models dense: verified, then timed alternately.

    python benchmarks/sparsify.py [mlp mobilenet resnet50 encoder training] [--rounds R] [--threads T] [--batches N ...]
                                  [--sparsities S ...] [--images N] [--compile] [--table]

The dense model has the pruned weights, zeros and all. Its outputs are compared with the sparse one's before anything
is timed: within TOLERANCE of the largest, and the same largest output of each row, unless two are nearer than that.
Programs take turns. A ratio is the median over turns of the dense time over the sparse one, with its 95 % interval;
that of the best times is less disturbed on a busy machine, and so are processor seconds. Convolutions run in both
layouts; the fastest dense program counts, and the fastest sparse one. --compile: both through torch.compile take part,
with frozen weights but in training. Batch normalisations are folded into the convolutions of both (`fuse`).
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch_models
from torch import nn

import spdnn.torch as st
from spdnn.core.statistics import ratios

TOLERANCE = 1e-4  # of the largest output
MODELS = ("mlp", "mobilenet", "resnet50", "encoder", "training")
TARGETS = {("mlp", 0.9): 2.5, ("mlp", 0.95): 4.0, ("mlp", 0.98): 8.0, "mobilenet": 1.8, "resnet50": 1.3, "encoder": 1.8,
           "training": 1.0}  # fmt: skip


def pruned_pair(model: nn.Module, sparsity: float, inputs: torch.Tensor, options) -> tuple[nn.Module, nn.Module]:
    """(dense with pruned weights, sparse); what sparsify leaves is the same in both."""
    for module in model.modules():  # so that outputs hang on inputs, not on biases
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    sparse = copy.deepcopy(model)
    table = st.sparsify(sparse, sparsity, inputs=inputs, quiet=not options.table)
    dense = copy.deepcopy(sparse)
    for name in table.replaced:
        dense.set_submodule(name, dense.get_submodule(name).to_dense())
    norms = {name: module for name, module in dense.named_modules() if isinstance(module, nn.BatchNorm2d)}
    if norms:  # of the activations that the pruned model has
        for module in norms.values():
            module.momentum = 1.0
        with torch.no_grad():
            dense.train()(inputs)
        for name, module in norms.items():
            sparse.get_submodule(name).load_state_dict(module.state_dict())
        dense.eval()
        st.fuse(dense), st.fuse(sparse)
    print(f"  {len(table.replaced)} of {len(table)} layers replaced")
    return dense, sparse


def verified(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Raises SystemExit when outputs differ."""
    allowed = TOLERANCE * wanted.abs().max()
    error = (found - wanted).abs().max()
    top = wanted.flatten(0, -2).topk(2)
    same = found.flatten(0, -2).argmax(1) == top.indices[:, 0]
    near = top.values[:, 0] - top.values[:, 1] < allowed
    if not error <= allowed or not bool((same | near).all()):
        sys.exit(f"outputs differ by {error:.1e}; {allowed:.1e} is allowed")
    print(f"  verified: outputs differ by {error / wanted.abs().max():.1e} of the largest; each row has the same one")


def compare(programs: dict[str, Callable[[], object]], options, target: float) -> None:
    """Time all in turn; print each, and the ratios of the fastest dense one over the fastest sparse one."""
    wall: dict[str, list[float]] = {name: [] for name in programs}
    busy: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(1 + options.rounds):
        for name, run in programs.items():
            began, used = time.perf_counter(), time.process_time()
            run()
            if number:
                wall[name].append(time.perf_counter() - began)
                busy[name].append(time.process_time() - used)
    for name in programs:
        print(f"  {name:<22} median {1e3 * np.median(wall[name]):9.2f} ms, best {1e3 * min(wall[name]):9.2f} ms")
    ours, other = (
        min((name for name in programs if name.startswith(kind)), key=lambda name: min(wall[name]))
        for kind in ("sparse", "dense")
    )
    one, work = ratios(wall[ours], wall[other]), ratios(busy[ours], busy[other])
    best = min(wall[other]) / min(wall[ours])
    print(
        f"  {other} / {ours}: {one.median:.2f} ({one.low:.2f} to {one.high:.2f}), best {best:.2f}, processor seconds "
        f"{work.median:.2f}; {target} {'reached' if one.median >= target else 'missed'}",
        flush=True,
    )


def forward(name: str, model: nn.Module, x: torch.Tensor, sparsity: float, target: float, options) -> None:
    """Images or features in, outputs out."""
    print(f"{name}, {tuple(x.shape)}, {sparsity:.0%} sparse, {options.threads} threads")
    last = torch.channels_last if x.dim() == 4 else torch.contiguous_format
    model = model.eval().to(memory_format=last) if x.dim() == 4 else model.eval()
    dense, sparse = pruned_pair(model, sparsity, x.to(memory_format=last), options)
    with torch.inference_mode():
        x = x.clone()
        verified(sparse(x), dense(x))
        programs = {"sparse": lambda: sparse(x), "dense": lambda: dense(x)}
        if x.dim() == 4:
            y, plain = x.to(memory_format=last), copy.deepcopy(dense).to(memory_format=torch.contiguous_format)
            programs = {
                "sparse": lambda: sparse(y),
                "dense": lambda: plain(x),
                "dense, channels last": lambda: dense(y),
            }
    if options.compile:
        taken = x.to(memory_format=last)
        for kind, network in (("sparse", sparse), ("dense", dense)):
            compiled = torch.compile(network, options={"freezing": True})
            with torch.no_grad():
                verified(compiled(taken), dense(taken))
            programs[f"{kind}, compiled"] = lambda compiled=compiled: compiled(taken)
    with torch.no_grad():
        compare(programs, options, target)


def training(options) -> None:
    """A step of the encoder block: forward, backward, optimiser."""
    x, goal = torch.randn(1, 512, 768), torch.randn(1, 512, 768)
    print(f"training step of the encoder block, {tuple(x.shape)}, 90% sparse, {options.threads} threads")
    dense, sparse = pruned_pair(torch_models.encoder(), 0.9, x, options)

    def step(model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimiser.step()

    with torch.no_grad():
        verified(sparse(x), dense(x))
    # Linear layers by torch's names; what is not replaced has the same gradient in both.
    for model in (dense, sparse):
        (model(x) - goal).square().mean().backward()
    for (name, parameter), (_, other) in zip(
        sparse.second.named_parameters(), dense.second.named_parameters(), strict=True
    ):
        if not torch.allclose(parameter.grad, other.grad, rtol=1e-3, atol=1e-6):
            sys.exit(f"gradients of {name} differ")
    programs = {}
    for name, model in (("sparse", sparse), ("dense", dense)):
        by = torch.optim.AdamW(model.parameters(), 1e-4)
        programs[name] = lambda model=model, by=by: step(model, by)
    if options.compile:
        for kind, model in (("sparse", sparse), ("dense", dense)):
            fast = torch.compile(copy.deepcopy(model))
            tuned = torch.optim.AdamW(fast.parameters(), 1e-4)
            programs[f"{kind}, compiled"] = lambda fast=fast, tuned=tuned: step(fast, tuned)
    compare(programs, options, TARGETS["training"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", choices=[*MODELS, []], default=[])
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--batches", type=int, nargs="+", default=[64, 1024])
    options.add_argument("--sparsities", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    options.add_argument("--images", type=int, default=8)
    options.add_argument("--compile", action="store_true")
    options.add_argument("--table", action="store_true")
    args = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}")
    for name in args.models or MODELS:
        if name == "mlp":
            for sparsity in args.sparsities:
                for batch in args.batches:
                    target = TARGETS.get((name, sparsity), 1.0)
                    forward(name, torch_models.mlp(), torch.randn(batch, 4096), sparsity, target, args)
        elif name == "training":
            training(args)
        elif name == "encoder":
            forward(name, torch_models.encoder(), torch.randn(1, 512, 768), 0.9, TARGETS[name], args)
        else:
            images = torch.randn(args.images, 3, 224, 224)
            forward(name, getattr(torch_models, name)(), images, 0.9, TARGETS[name], args)


if __name__ == "__main__":
    main()
