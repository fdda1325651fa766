"""Fuzzing of compiled modules: python tests/with_torch/fuzz_modules.py [--seconds 600] [--workers N] [--seed N].

Each seed draws a module (drawn_modules.py) twice. One is compiled, and all of it is overwritten afterwards; the
compiled model is compared with the other at several numbers of inputs. A module fails where compile changes it, says no
sentence, refuses what it should take or takes what it should refuse, and where outputs differ.
"""

import argparse
import functools
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drawn_modules
import numpy as np
import torch
from drawn_modules import MOST, REFUSED, TAKEN, Drawn
from torch import Tensor, nn
from torch.onnx._internal.exporter import _registration
from torch.utils._pytree import tree_leaves

import spdnn
from spdnn.core.errors import SpdnnError

LONGEST = 400  # characters of a sentence
LEFT = 180  # seconds for one module, and for a process to begin
MODULES = 150  # of a process: torch keeps something of each export
MOST_FAILURES = 20
TUNED = 0.15  # the part of all modules whose products are timed
# What torch and ONNX Runtime may differ by in modules this small, of the largest output; compile allows ten times that,
# for larger models.
ROUNDING = {"float32": 1e-4, "float64": 1e-8}


@dataclass
class Outcome:
    """What became of a seed.

    Attributes:
        result: compiled or refused; said: the sentence of a refusal.
        comparisons: calls whose outputs were compared; failures: sentences.
    """

    seed: int
    result: str = "failed"
    said: str = ""
    comparisons: int = 0
    failures: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


def examine(seed: int, compile: Callable[..., Any] = spdnn.compile) -> Outcome:
    """Draw the module of a seed, compile and judge it. SPDNN_TUNING is as the caller has it."""
    outcome = Outcome(seed)
    try:
        drawn, twin = drawn_modules.draw(seed), drawn_modules.draw(seed)
        outcome.pieces = drawn.pieces
        outcome.failures += _judge(outcome, drawn, _reference(twin), compile)
    except Exception:  # of the fuzzer or of torch: what is drawn must be fit to be called
        outcome.failures.append(traceback.format_exc())
    return outcome


def _judge(outcome: Outcome, drawn: Drawn, reference: Callable, compile: Callable[..., Any]) -> Iterator[str]:
    """In which ways the compiled module is not as it should be."""
    before = _everything(drawn)
    try:
        model = compile(drawn.given, example=drawn.example, threads=1)
    except SpdnnError as error:
        outcome.result, outcome.said = "refused", str(error)
        # ONNX Runtime computes some functions in float32 alone.
        rare = drawn.dtype == torch.float64 and "Could not find an implementation" in outcome.said
        if drawn.expected == TAKEN and not rare:
            yield f"it should be taken, and is refused: {error}"
        if "\n" in str(error) or "Traceback" in str(error) or not 10 < len(str(error)) <= LONGEST:
            yield f"this is no sentence: {str(error)!r}"
        model = None
    except Exception:
        yield traceback.format_exc()
        model = None
    after = _everything(drawn)
    if changed := [name for name in {**before, **after} if before.get(name) != after.get(name)]:
        yield f"compile changed {', '.join(changed)}"
    if model is None:
        return
    outcome.result = "compiled"
    if drawn.expected == REFUSED:
        yield "it should be refused, and is taken"
        return
    _spoil(drawn, outcome.seed)
    names = model.signature.names
    if drawn.names and names != drawn.names:
        yield f"its inputs are {names}, and those of the module {drawn.names}"
    generator = random.Random(outcome.seed)
    counts = {1, 2, len(drawn.tensors[0]), generator.randint(3, MOST), *drawn.counts}
    for count in sorted(counts):
        inputs = drawn.inputs(count)
        try:
            expected = reference(inputs)
        except Exception:  # of any kind: the module's own code runs
            continue
        for way, given, named in _ways(inputs, names):
            kept = [_bytes(each) for each in (*given, *named.values())]
            try:
                found = model(*given, **named)
            except Exception:
                yield f"at {count} inputs, {way}: {traceback.format_exc()}"
                continue
            outcome.comparisons += 1
            if kept != [_bytes(each) for each in (*given, *named.values())]:
                yield f"at {count} inputs, {way}: a call writes into its inputs"
            if why := _difference(found, expected, np.ndarray if way == "arrays" else Tensor):
                yield f"at {count} inputs, {way}: {why}"


def _reference(twin: Drawn) -> Callable[[list[Tensor]], list[Any]]:
    """What the module gives for inputs, in inference; in float32 where it is in half precision, as compile says."""
    module = twin.module.eval()
    module = module.float() if twin.dtype == torch.float16 else module

    def call(inputs: list[Tensor]) -> list[Any]:
        copies = [x.float() if x.dtype == torch.float16 else x.clone() for x in inputs]
        by_name = isinstance(module, drawn_modules.Three)
        with torch.no_grad():
            return tree_leaves(module(*copies[:2], z=copies[2]) if by_name else module(*copies))

    return call


def _ways(inputs: list[Tensor], names: list[str]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Ways to call a model: (in words, what is given by place, what is given by name)."""
    yield "tensors", [x.clone() for x in inputs], {}
    yield "arrays", [x.clone().numpy() for x in inputs], {}
    yield "by name", [], {name: x.clone() for name, x in reversed([*zip(names, inputs, strict=True)])}
    yield "a mapping", [dict(zip(names, (x.clone() for x in inputs), strict=True))], {}


def _difference(found: Any, expected: list[Any], kind: type) -> str | None:
    """In which way outputs are not those of the module."""
    found = list(found) if isinstance(found, tuple | list) else [found]
    if len(found) != len(expected):
        return f"{len(found)} outputs for {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not isinstance(one, kind):
            return f"output {number} is a {type(one).__name__}"
        one, other = np.asarray(one), other.numpy()
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"output {number} is {one.dtype} of shape {one.shape}, and of the module {other.dtype} {other.shape}"
        if other.dtype.kind != "f":
            if (one != other).any():
                return f"output {number} differs"
            continue
        largest = np.abs(other[np.isfinite(other)]).max(initial=0.0)
        part = ROUNDING[other.dtype.name]
        # Numbers inside are of about 1: what cancels to less is off by as much.
        if not np.allclose(one, other, rtol=0, atol=part * max(1.0, largest), equal_nan=True):
            return f"output {number} differs by {np.nanmax(np.abs(one - other)):.3g}, and its largest is {largest:.3g}"
    return None


def _bytes(value: Any) -> Any:
    """The numbers that a tensor, an array or a mapping of them holds."""
    if isinstance(value, dict):
        return {name: _bytes(each) for name, each in value.items()}
    value = value.detach() if isinstance(value, Tensor) else value
    return np.asarray(value).tobytes()


def _tensors(drawn: Drawn) -> list[Tensor]:
    """All that computes in what was given, the example, and what the user holds."""
    found = [*drawn.held, *drawn.tensors, *drawn.module.parameters(), *drawn.module.buffers()]
    if isinstance(drawn.given, nn.Module):
        found += [*drawn.given.parameters(), *drawn.given.buffers()]
    else:
        program = drawn.given
        found += [
            each for each in (*program.state_dict.values(), *program.constants.values()) if isinstance(each, Tensor)
        ]
        found += [each for each in tree_leaves(program.example_inputs) if isinstance(each, Tensor)]
    return found


def _everything(drawn: Drawn) -> dict[str, Any]:
    """What compile must leave as it is: tensors by their bytes, the rest by its identity."""

    def state(value: Any) -> Any:
        if isinstance(value, Tensor):
            return id(value), value.requires_grad, value.is_leaf and id(value.grad), _bytes(value)
        if isinstance(value, dict):
            return {name: state(each) for name, each in value.items()}
        if isinstance(value, list):
            return [state(each) for each in value]
        return (value,) if isinstance(value, bool | int | float) else (id(value), type(value))

    given = drawn.given if isinstance(drawn.given, nn.Module) else drawn.module
    parts = {f"{root}.{name}": part for root, whole in (("given", given), ("module", drawn.module))
             for name, part in whole.named_modules()}  # fmt: skip
    held = {name: state(vars(part)) for name, part in parts.items()}
    tensors = {f"tensor {number}": state(each) for number, each in enumerate(_tensors(drawn))}
    modes = {
        "the random state of torch": torch.get_rng_state().numpy().tobytes(),
        "the random state of Python": random.getstate(),
        "the random state of NumPy": repr(np.random.get_state()),  # noqa: NPY002
        "a mode of torch": (torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(),
                            torch.is_inference_mode_enabled(), torch.get_default_device()),
    }  # fmt: skip
    return held | tensors | modes


def _spoil(drawn: Drawn, seed: int) -> None:
    """Overwrite all that went into compile, in place, and take layers out."""
    generator = random.Random(seed)
    with torch.inference_mode():  # in which tensors of inference mode can be written
        for tensor in _tensors(drawn):
            tensor.fill_(tensor.dtype == torch.bool or 7)
    for part in [*drawn.module.modules()]:
        part.train()
        for name in [*part._modules]:
            if generator.random() < 0.5:
                part._modules[name] = nn.Identity()
            else:
                del part._modules[name]


def work(pipe: Any) -> None:
    """Examine each seed that comes through a pipe."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch, about ways to hold tensors that are drawn on purpose
    registry = _registration.ONNXRegistry  # a second of each export, which reads no more than it holds
    registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
    with tempfile.TemporaryDirectory(prefix="spdnn-fuzz-") as folder:
        os.environ["SPDNN_TUNED"] = str(Path(folder, "tuned.json"))
        while (seed := pipe.recv()) is not None:
            os.environ["SPDNN_TUNING"] = "on" if random.Random(f"tuning {seed}").random() < TUNED else "off"
            pipe.send(examine(seed))


class Worker:
    """A process that examines seeds; one that dies or hangs is that seed's failure."""

    def __init__(self):
        self.process, self.pipe, self.done = None, None, 0

    def examine(self, seed: int) -> Outcome:
        if self.process is None or self.done >= MODULES:
            self.end()
            context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
            self.pipe, other = context.Pipe()
            self.process, self.done = context.Process(target=work, args=(other,), daemon=True), 0
            self.process.start()
            other.close()
        self.done += 1
        try:
            self.pipe.send(seed)
            if self.pipe.poll(LEFT):
                return self.pipe.recv()
            why = f"it did not end within {LEFT} s"
        except (EOFError, OSError):
            self.process.join()
            why = f"its process ended with status {self.process.exitcode}"
        self.process.kill()
        self.end()
        return Outcome(seed, failures=[why])

    def end(self) -> None:
        if self.process is not None:
            try:
                self.pipe.send(None)
            except OSError:
                self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, help="the first seed; by default another one each time")
    parser.add_argument("--count", type=int, help="so many seeds, however long they take")
    parser.add_argument("--verbose", action="store_true", help="print what each module is made of")
    args = parser.parse_args()
    first = random.randrange(10**6) * 1000 if args.seed is None else args.seed
    seeds, lock, outcomes = iter(range(first, first + (args.count or 10**9))), threading.Lock(), []
    began = time.monotonic()

    def loop(_: int) -> None:
        worker = Worker()
        try:
            while args.count or time.monotonic() < began + args.seconds:
                with lock:
                    seed = next(seeds, None)
                    failed = sum(bool(outcome.failures) for outcome in outcomes)
                if seed is None or failed >= MOST_FAILURES:
                    break
                outcome = worker.examine(seed)
                with lock:
                    outcomes.append(outcome)
                    show(outcome, args.verbose)
        finally:
            worker.end()

    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(loop, range(args.workers)))
    minutes = (time.monotonic() - began) / 60
    results = Counter(outcome.result for outcome in outcomes)
    failures = sum(bool(outcome.failures) for outcome in outcomes)
    rows = {
        "drawn": len(outcomes), "compiled": results["compiled"], "refused": results["refused"],
        "comparisons": sum(outcome.comparisons for outcome in outcomes), "failures": failures,
    }  # fmt: skip
    print(f"\n{'modules':<20}{'':>12}")
    for name, number in rows.items():
        print(f"{name:<20}{number:>12,}")
    print(f"{'drawn per minute':<20}{len(outcomes) / minutes:>12.0f}")
    return 1 if failures else 0


def show(outcome: Outcome, verbose: bool) -> None:
    if outcome.failures or verbose:
        command = f"python tests/with_torch/fuzz_modules.py --seed {outcome.seed} --count 1"
        print(f"--- {command}", f"{outcome.result}: {', '.join(outcome.pieces)}", flush=True, sep="\n")
        print(*outcome.failures, *filter(None, [outcome.said]), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
