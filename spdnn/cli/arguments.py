"""Types of arguments, and options that several subcommands take."""

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from spdnn.common.errors import InputError
from spdnn.common.files import check_outputs
from spdnn.common.resources import most_threads, usable_cores
from spdnn.common.shown import counted
from spdnn.distributed.partition import PARTITIONS
from spdnn.engines.base import MAX_THREADS, Engine
from spdnn.engines.registry import engines_that_cut
from spdnn.taskgraph.decomposition import AUTO, SCHEDULES, ScheduleRequest

LARGEST = 10**9
CUT = ("schedule", "devices", "pipeline", "batches", "buffers", "device_memory", "join")  # arguments of add_cut

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def number(text: str, kind: type, fits: Callable[[float], bool], allowed: str) -> float:
    """A number of that kind for which `fits` is true; `allowed` is what the error says it must be."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be {allowed}")
    return value


def times_again(text: str) -> int:
    """An integer from 0 to 100."""
    return number(text, int, lambda n: 0 <= n <= 100, "an integer from 0 to 100")


def positive(text: str) -> int:
    """An integer from 1 to LARGEST."""
    return number(text, int, lambda n: 1 <= n <= LARGEST, f"an integer from 1 to {LARGEST:,}")


def thread_count(text: str) -> int:
    """An integer from 1 to MAX_THREADS."""
    return number(text, int, lambda n: 1 <= n <= MAX_THREADS, f"an integer from 1 to {MAX_THREADS}")


def natural(text: str) -> int:
    """An integer from 0 to LARGEST."""
    return number(text, int, lambda n: 0 <= n <= LARGEST, f"an integer from 0 to {LARGEST:,}")


def size(text: str) -> int:
    """Bytes: a number, or one with k, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti (of 1024), B optional."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in _UNITS or not 1 <= float(match[1]) < LARGEST**2:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of bytes, such as 8000000000, 8GB or 7.5GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def above_zero(text: str, allowed: str = "a positive number") -> float:
    """A positive number; `allowed` is what the error says it must be."""
    return number(text, float, lambda n: 0 < n < math.inf, allowed)


def clip(text: str) -> float | None:
    """A positive number, or none."""
    return None if text == "none" else above_zero(text, "a positive number or none")


def biases(text: str) -> float | list[float]:
    """A number, or several joined by commas."""
    several = [number(part, float, math.isfinite, "a number, or one for each layer joined by commas")
               for part in text.split(",")]  # fmt: skip
    return several if len(several) > 1 else several[0]


# Options that several commands take, without the help text of each command.
OPTIONS = {
    "neurons": {"type": positive, "metavar": "N"},
    "layers": {"type": positive, "metavar": "L"},
    "count": {"type": positive, "metavar": "n"},
    "repeats": {"type": positive, "metavar": "R"},
    "repeat-if-busy": {
        "type": times_again,
        "default": 0,
        "metavar": "N",
        "help": "run all repeats again, up to N times, while other work takes over 10 %% of the machine (default: 0)",
    },
    "threads": {"type": thread_count, "metavar": "T"},
    "memory": {"type": size, "metavar": "BYTES"},
    "seed": {
        "type": natural,
        "default": 0,
        "metavar": "S",
        "help": "of the inputs that are drawn before the run, to be compared with the oracle (default: 0)",
    },
    "mnist": {"metavar": "FILE", "help": "the MNIST training images, idx or idx.gz"},
}


def option(command, name: str, **words) -> None:
    """Add one of OPTIONS to a command or group; `words`: help, default and the like."""
    command.add_argument(f"--{name}", **(OPTIONS[name] | words))


def add_reading(command: argparse.ArgumentParser) -> None:
    """What must be known of a file of weights alone: --last, --bias, --clip and --rows; `reading` has what was set."""
    group = command.add_argument_group("of a network file that holds weights alone, and not what is done with them")
    group.add_argument(
        "--last",
        choices=["relu", "none"],
        help="activation of the last layer, which stores, ONNX models and official text state; the others "
        "have ReLU. With none, an ONNX model goes without a softmax at its end",
    )
    command._negative_number_matcher = re.compile(r"-[\d.]")  # -0.3,-0.4 is a value, too
    group.add_argument(
        "--bias",
        type=biases,
        metavar="B",
        help="a number, or one for each layer joined by commas (default: the file's own; official text has one by its "
        "width; else 0)",
    )
    group.add_argument(
        "--clip", type=clip, default=argparse.SUPPRESS, metavar="Y|none",
        help="clip of the ReLU (default: 32 for official text, none otherwise)",
    )  # fmt: skip
    group.add_argument(
        "--rows",
        choices=["inputs", "outputs"],
        help="what the rows of a weight matrix are (default: outputs in a state dict, as torch has them, else inputs; "
        "required where matrices fit both ways)",
    )


def reading(chosen: argparse.Namespace) -> dict:
    """The arguments of add_reading that were set, as open_network takes them."""
    words = {name: getattr(chosen, name, None) for name in ("last", "bias", "rows")}
    return {name: value for name, value in words.items() if value is not None} | (
        {"clip": chosen.clip} if "clip" in chosen else {}
    )


def reading_words(chosen: argparse.Namespace) -> list:
    """The same as words of a command line."""
    words = []
    for name, value in reading(chosen).items():
        value = ",".join(map(repr, value)) if isinstance(value, list) else value
        words.append(f"--{name}={'none' if value is None else value}")
    return words


def add_engine(command: argparse.ArgumentParser) -> None:
    """--engine, --reductions, --threads and --memory."""
    command.add_argument("--engine", default="cpu", metavar="E", help="as `spdnn engines` lists them (default: cpu)")
    command.add_argument(
        "--reductions",
        metavar="LIST",
        help="exact reductions: all that the engine offers (default), none, or names joined by commas",
    )
    option(
        command,
        "threads",
        help="of each rank (default: all cores that this process may use, shared out to the ranks of the node)",
    )
    option(
        command,
        "memory",
        help="peak resident memory of the run (not of the verification) not to be passed, such as 8GiB; of the ranks "
        "of a node together (default: most of what is free)",
    )
    command.add_argument(
        "--device",
        type=natural,
        metavar="D",
        help="which GPU, counted from 0 among those that CUDA_VISIBLE_DEVICES shows; with --devices the first of them "
        "(default: 0; several ranks share them out)",
    )
    command.add_argument(
        "--partition",
        default="rebalanced",
        choices=PARTITIONS,
        help="which rank of `mpiexec -n R spdnn ...` has which inputs: static (contiguous parts), cyclic, or "
        "rebalanced (default: static at first, then rows move to ranks that have fewer, when that pays)",
    )


def add_cut(command: argparse.ArgumentParser, devices: bool = True) -> None:
    """How engines that cut an inference into tasks do so; each is None unless set; `devices`: --devices too."""
    group = command.add_argument_group("task graph (engines of that kind alone)")
    group.add_argument(
        "--schedule",
        choices=(AUTO, *SCHEDULES),
        help="resident (weights stay on each device), stream (they pass through buffers), graph (devices draw batches "
        "as they finish), pipeline (each device has a range of the layers), or auto (default: the fastest predicted)",
    )
    if devices:
        group.add_argument("--devices", type=positive, metavar="D", help="of each rank (default: 1)")
    group.add_argument(
        "--pipeline", type=positive, metavar="P",
        help="devices that each batch passes through (default: all with the schedule pipeline, else 1)",
    )  # fmt: skip
    group.add_argument("--batches", type=positive, metavar="B", help="of the inputs, at most (default: as few as fit)")
    group.add_argument(
        "--buffers", type=positive, metavar="n", help="of streamed weights on a device, 2 or more (default: 2)"
    )
    group.add_argument(
        "--no-join", dest="join", action="store_const", const=False,
        help="each batch goes to its end alone (default: those with few rows left go on as one)",
    )  # fmt: skip
    group.add_argument(
        "--device-memory", type=size, metavar="BYTES", help="that a device may take at most (default: what it has)"
    )


def cutting(chosen: argparse.Namespace) -> dict:
    """The arguments of add_cut that were set."""
    return {name: getattr(chosen, name) for name in CUT if getattr(chosen, name) is not None}


def request(chosen: argparse.Namespace, engine: Engine) -> ScheduleRequest | None:
    """The settings of the task graph; None for engines that cut nothing, for which InputError refuses any."""
    cuts = cutting(chosen)
    if engine.cuts:
        return ScheduleRequest(**cuts)
    if cuts:
        option = next(iter(cuts)).replace("_", "-").replace("join", "no-join")
        raise InputError(f"engine {engine.name} takes no --{option}; the engines {' and '.join(engines_that_cut())} do")
    return None


def check_files(chosen: argparse.Namespace) -> None:
    """Refuse outputs of a command that cannot be written, or would replace what it reads, before anything runs.

    A command says which of its arguments are files that it reads and writes: `reads` and `writes` of its defaults. In
    `writes`, `folder/*.json` are such files in the folder that the argument `folder` names.

    Raises:
        InputError: as files.check_outputs.
    """
    outputs, inside = [], []
    for name, _, pattern in (name.partition("/") for name in getattr(chosen, "writes", ())):
        path = getattr(chosen, name)
        if path and pattern:
            inside += filter(Path.is_file, Path(path).glob(pattern))
        elif path:
            outputs.append(path)
    check_outputs(outputs)
    existing = [*inside, *filter(os.path.exists, outputs)]
    if existing:
        check_outputs(existing, (file for name in chosen.reads for file in _read(name, getattr(chosen, name))))


def _read(name: str, value: str | Path | list | None) -> Iterator[Path]:
    """The files that are read where the argument `name` has this value."""
    for path in map(Path, value if isinstance(value, list) else [value] if value else []):
        if name == "network":
            from spdnn.formats.readers import network_files

            yield from network_files(path)
        elif name == "records":
            from spdnn.records.record_files import record_files

            found = record_files(path)
            yield from (*found.records, *found.verdicts, path / "cases.json")
        else:
            yield from path.rglob("*") if path.is_dir() else [path]


def threads(asked: int | None, ranks: int = 1, warn: bool = True) -> int:
    """The number of threads of each of so many ranks on this node; more than cores is allowed, with a warning.

    Raises:
        InputError: more than the resource limits of this process leave room for.
    """
    cores, most = usable_cores(), most_threads()
    if asked and asked > most:
        raise InputError(
            f"--threads {asked}: the limit of address space (ulimit -v) has room for {counted(int(most), 'threads')}; "
            "raise it, or give fewer threads"
        )
    if asked and asked * ranks > cores and warn:
        print(f"spdnn: warning: {asked * ranks} threads on {cores} cores run slower than {cores}", file=sys.stderr)
    return asked or max(1, min(cores // ranks, int(min(most, cores))))
