"""A compiled model and a session of ONNX Runtime in one process, called in turns: how much each slows the other.

    python benchmarks/two_sessions.py -o RECORDS

Threads of ONNX Runtime spin for a while after each call (some 50 ms, measured), on the cores that the next call of the
other model needs. The session option `session.force_spinning_stop` ends that. Each pair of models is timed four ways:
each alone, called in turns, and in turns where the session of ONNX Runtime, which stands for one of the user's own, has
this option. Models are those of benchmarks/onnx_models.py.
"""

import argparse
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx_models import MODELS as EVERY
from onnx_models import mobilenet

import spdnn
from spdnn.bench.calls import OnnxCase
from spdnn.bench.contest import ComparisonSettings, Entrant, Pace, contest
from spdnn.bench.judge import Call, Judge
from spdnn.bench.libraries.base import DENSE, OURS, TimedProgram
from spdnn.bench.records import Task, model_problem, operation_records
from spdnn.cli.bench_shared import writer
from spdnn.core.resources import usable_cores
from spdnn.formats import onnx_files
from spdnn.runs.records.operation_record import Verification

CALLS = 10  # of each model in a turn
PACE = Pace(9, 100, warm=True, wait_for_idle=True)
ALONE, TURNS, STOPS = "onnxruntime", "in turns", "in turns without spinning"
MODELS = {name: EVERY[name] for name in ("mobilenet-90", "mlp-2048-95")}  # of ours
OTHER = partial(mobilenet, 1.0)  # of the user's session


class Program(TimedProgram):
    """Models that are called in turns, CALLS times each; it gives the outputs of the last calls."""

    def __init__(self, name: str, calls: Sequence[Callable[[], list]], threads: int, nbytes: int):
        self.name, self.kind, self.calls = name, OURS if name == OURS else DENSE, calls
        self.threads_used, self.matrix_bytes = threads, nbytes
        self.version = f"spdnn {spdnn.__version__}, ONNX Runtime {onnx_files.runtime().__version__}"
        self.notes = {"calls": CALLS, "precision": "float32"}

    def __call__(self, x: Any = None) -> list[np.ndarray]:
        for _ in range(CALLS):
            outs = [out for call in self.calls for out in call()]
        return outs

    def arrays(self, out: list[np.ndarray]) -> list[np.ndarray]:
        return out


def compare(name: str, folder: Path, comparison: ComparisonSettings) -> list:
    """The records of the four ways with one of MODELS."""
    paths, cases, threads = [folder / "ours.onnx", folder / "other.onnx"], [], comparison.threads
    for make, path in zip((MODELS[name], OTHER), paths, strict=True):
        path.write_bytes(make().SerializeToString())
        cases.append(OnnxCase(name, str(path), threads, [1]))
    # Each model has one input, and what it must give for it.
    inputs, right, tolerated = zip(*(next(iter(case.calls(1, 1))) for case in cases), strict=True)

    def session(stops: bool) -> Callable[[], list]:
        def change(options: Any) -> None:
            options.intra_op_num_threads = threads
            if stops:
                options.add_session_config_entry("session.force_spinning_stop", "1")

        made = onnx_files.session(paths[1], change)
        feed = {argument.name: array for argument, array in zip(made.get_inputs(), inputs[1], strict=True)}
        return lambda: made.run(None, feed)

    own = spdnn.compile(paths[0], threads=threads, example=inputs[0])
    plain, ours = session(stops=False), lambda: [own(*inputs[0])]
    ways = {OURS: [ours], ALONE: [plain], TURNS: [ours, plain], STOPS: [ours, session(stops=True)]}
    used = {OURS: [0], ALONE: [1]}  # of the two models, where a way does not call both

    def judge(way: str, entrant: Entrant, out: list[np.ndarray]) -> Verification:
        parts = used.get(way, [0, 1])
        call = Call((), *([each for part in parts for each in arrays[part]] for arrays in (right, tolerated)))
        return Judge([call], OnnxCase.reference, cases[0].rule)(way, entrant, out)

    nbytes, entries = sum(path.stat().st_size for path in paths), sum(case.entries for case in cases)
    makers = {way: partial(Program, way, calls, threads, nbytes) for way, calls in ways.items()}
    entrants, _, load = contest(makers, judge, PACE, comparison.seconds)
    digest = hashlib.sha256("".join(case.digest for case in cases).encode()).hexdigest()
    problem = model_problem(name, "beside MobileNet", entries, sum(case.nonzeros for case in cases), digest)
    operands = sum(array.nbytes for arrays in (*inputs, *right) for array in arrays)
    task = Task("network", f"network.two.{name}", problem, (0, 0), operands)
    return operation_records(task, comparison, entrants.values(), load)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", metavar="RECORDS", type=Path, required=True, help="folder of the records")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=10.0, help="of each pair of models (default: 10)")
    args = parser.parse_args(words)
    args.output.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/two_sessions.py -o records --threads {args.threads} --seconds {args.seconds:g}"
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            records = compare(name, Path(folder), ComparisonSettings(args.threads, [], args.seconds, command))
        writer(args.output / f"{name}.jsonl")(records)
        seconds = {record.program.name: np.array(record.seconds) for record in records}
        alone = seconds[OURS] + seconds[ALONE]
        print(
            name, *(f"{way}: {np.median(seconds[way] / alone):.2f} times as long" for way in (TURNS, STOPS)), sep="\n  "
        )


if __name__ == "__main__":
    main()
