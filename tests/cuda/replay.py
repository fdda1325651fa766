"""Launches that were written to a folder (spdnn/kernels/cuda/launches.py), replayed on the CPU shim and compared.

    PYTHONPATH=. python tests/cuda/replay.py FOLDER                       replay
    PYTHONPATH=. python tests/cuda/replay.py FOLDER --write [--engine E] [--neurons N --layers L --count C]

The second writes the launches of a small official problem through the shim itself, so that a simulator has something to
run where there is no GPU. Exit status: 0 every array is the same to the bit, 1 one is not.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from shim import ShimDevice, stand_ins

from spdnn.kernels.cuda.declarations import Kernel
from spdnn.kernels.cuda.launches import ARRAYS, LAUNCHES, LIST, SOURCES


@dataclass(frozen=True)
class Replayed:
    """One launch; `wrong`: the arrays that came out otherwise, by the names of the kernel's arguments."""

    number: int
    kernel: Kernel
    wrong: list[str]


def replay(folder: Path, order: int = 0) -> Iterator[Replayed]:
    """Every launch by itself, from the arrays that it had before, in the shim's `order` of threads and blocks."""
    folder = folder.resolve()
    for number, text in enumerate((folder / LIST).read_text(encoding="utf-8").splitlines()):
        one = json.loads(text)
        device = ShimDevice(
            order, one["capability"], one["multiprocessors"], one["shared_per_block"], memory_bytes=1 << 40
        )
        file = str(folder / SOURCES / f"{one['source']}.cu")  # its own headers are in line
        kernel = Kernel(file, one["kernel"], one["threads"], tuple(one["macros"].items()))
        arguments, kept = {}, []
        for argument in one["arguments"]:
            if "value" in argument:
                arguments[argument["name"]] = argument["value"]
                continue
            host = stored(folder, argument["array"])
            for place, content in argument.get("pointers", {}).items():
                kept.append(device.upload(stored(folder, content)))
                host[int(place)] = device.address(kept[-1])
            arguments[argument["name"]] = device.upload(host)
        device.bind(kernel, one["blocks"], arguments, one["shared"])()
        wrong = [
            argument["name"]
            for argument in one["arguments"]
            if "after" in argument and "pointers" not in argument
            and device.read(arguments[argument["name"]]).tobytes() != stored(folder, argument["after"]).tobytes()
        ]  # fmt: skip
        yield Replayed(number, kernel, wrong)


def stored(folder: Path, content: str) -> np.ndarray:
    return np.load(folder / ARRAYS / f"{content}.npy")


def write(folder: Path, engine: str, neurons: int, layers: int, count: int) -> None:
    """The launches of one run of an official problem on the first handwritten digits, through the shim."""
    from spdnn.api import infer
    from spdnn.formats.digits import digits_inputs
    from spdnn.formats.radixnet import RadixNet

    for stand_in in stand_ins([ShimDevice()]):
        setattr(*stand_in)
    os.environ[LAUNCHES] = str(folder)
    infer(RadixNet(neurons, layers), digits_inputs(neurons, count), engine, reductions="dead")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write launches there, do not replay")
    parser.add_argument("--engine", default="cuda-staged")
    for name, default in (("neurons", 1024), ("layers", 4), ("count", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if args.write:
        write(args.folder, args.engine, args.neurons, args.layers, args.count)
        return 0
    wrong = 0
    for one in replay(args.folder):
        wrong += bool(one.wrong)
        print(
            f"{one.number:>5}  {one.kernel.name:<20} {'differs: ' + ', '.join(one.wrong) if one.wrong else 'the same'}"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
