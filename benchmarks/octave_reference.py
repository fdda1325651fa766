"""The challenge's reference program, run by GNU Octave on files that spdnn wrote, alternately with our engine.

    git clone https://github.com/graphchallenge/GraphChallenge
    python benchmarks/octave_reference.py GraphChallenge/SparseDeepNeuralNetwork/matlab -o records

Layers, inputs and categories are written as official text. The program's own functions read them (readTriples,
StrFileRead) and run the network (inferenceReLUvec). Octave cannot add the sparse row that its main script makes of the
bias, so the bias is a number here, and these lines take the place of that script. The program is not part of this
project: each file is compared with its SHA-256 at COMMIT. Both programs have one thread; ours skips dead inputs alone.
The clock holds all layers, with weights and inputs in memory; the program's output is copied to us outside of it.
"""

import argparse
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec.structs import replace
from scipy.io import loadmat

from spdnn.bench.contest import Entrant, Pace, contest, digest
from spdnn.bench.libraries.base import TimedProgram
from spdnn.bench.networks import OURS, NetworkRun, write_records
from spdnn.core import challenge
from spdnn.core.categories import write_categories
from spdnn.core.errors import InputError, SpdnnError, Unavailable, fail
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.request import RunRequest
from spdnn.core.result import LayerWork, Result, RowStatistics
from spdnn.engines.base import Options, Prepared
from spdnn.engines.registry import engine
from spdnn.formats.images import write_images
from spdnn.formats.text import write_layers
from spdnn.runs import measure
from spdnn.runs.load import load_named_inputs, load_network
from spdnn.runs.records.files import record_of
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import truth_for, verdict_key, verdict_of
from spdnn.runs.verify.official import draw_kept

FOLDER = "SPDNN_CHALLENGE_REFERENCE"  # environment variable: the folder, where none is given
REPOSITORY, COMMIT = "graphchallenge/GraphChallenge", "0fa55a0626a0c4dbfbc0a28fb22150d99433603a"
FILES = {
    "StrFileRead.m": "b1a754dae7e1ec1b14017c4a57d5c3b492414d88c56748a0dc7868b87b0c48f8",
    "inferenceReLUvec.m": "a766a01a3a7a5fc70abdfc8f9beaf21c0cf9ca481a4e67036d47847dbfd25f22",
    "readTriples.m": "5f03f6c4ad7e8bb14c1a1fa3545dde4f44f5aef45ea55212db856082376cd988",
}
NAME = "octave-reference"  # of its engine in records
SPAN = "layer loop, resident"
DONE = "spdnn: done"  # what Octave prints after statements


def check_reference(folder: str | Path) -> Path:
    """The folder of the reference program, to be run here.

    Raises:
        InputError: it has not the FILES as they are at COMMIT. Unavailable: there is no Octave.
    """
    for name, sha256 in FILES.items():
        path = Path(folder, name)
        if not path.is_file():
            raise InputError(
                f"{folder}: it has no {name}; name SparseDeepNeuralNetwork/matlab in a clone of {REPOSITORY}"
            )
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise InputError(f"{path}: it is not the file of {REPOSITORY} at commit {COMMIT}; check out that commit")
    if not shutil.which("octave-cli"):
        raise Unavailable("Octave is not installed: the Debian package octave has it")
    return Path(folder).resolve()


def export(network: Network, inputs: Inputs, categories: np.ndarray, folder: Path) -> dict[str, str]:
    """Write a problem as official text: the path of the inputs, of a layer (%d is its number) and of the categories."""
    width, files = network.width, folder / f"neuron{network.width}"
    images, truth = folder / f"sparse-images-{width}.tsv", folder / f"neuron{width}-l{network.depth}-categories.tsv"
    write_layers(network, files)
    write_images(images, inputs)
    write_categories(truth, categories)
    return {"images": str(images), "layer": str(files / f"n{width}-l%d.tsv"), "truth": str(truth)}


class Octave:
    """A process of Octave with one thread, which runs statements; `peak_bytes`, once it is closed: its memory."""

    def __init__(self):
        self.peak_bytes = 0
        self.process = subprocess.Popen(
            ["octave-cli", "--quiet", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip

    def run(self, *statements: str) -> str:
        """Run statements; what they print. Raises SpdnnError with Octave's sentence where one fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n".join([*statements, f'disp("{DONE}"); fflush(stdout);', ""]))
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.strip() == DONE:
                return "".join(printed).strip()
            printed.append(line)
        wrong = [line.strip() for line in printed if line.startswith("error: ")]
        raise SpdnnError(f"Octave ended: {wrong[0] if wrong else 'it says no reason'}")

    def close(self) -> None:
        """End the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii", errors="replace").split()
        if "VmHWM:" in status:  # the peak resident set in KiB; of a process that has ended there is none
            self.peak_bytes = 1024 * int(status[status.index("VmHWM:") + 1])
        self.process.kill()
        self.process.communicate()


class ReferenceRun(TimedProgram):
    """The reference program on exported files, which it has read.

    Attributes:
        version: of Octave; read_seconds: of reading the files; layers, count: of the problem.
    """

    def __init__(self, reference: Path, files: dict[str, str], neurons: int, layers: int, count: int):
        self.octave, self.layers, self.count = Octave(), layers, count
        self.output = Path(files["truth"]).with_name("output.mat")
        self.version = self.octave.run("disp(version());")
        _, self.read_seconds = measure.time_call(
            self.octave.run,
            f"addpath({_quoted(reference)});",
            f"inputs = readTriples({_quoted(files['images'])});",
            f"inputs = resize(inputs, {count}, {neurons});",  # the last inputs or pixels may be zeros
            f"for k = 1:{layers} layers{{k}} = readTriples(sprintf({_quoted(files['layer'])}, k)); end",
            f"bias = repmat({{{challenge.BIAS[neurons]!r}}}, 1, {layers});",
            f"truth = str2num(StrFileRead({_quoted(files['truth'])}));",
        )

    def __call__(self, x: Any = None) -> None:
        self.octave.run("scores = inferenceReLUvec(layers, bias, inputs);")

    def fetch(self, *names: str) -> dict[str, np.ndarray]:
        """Variables of the program by name."""
        listed = ", ".join(map(_quoted, names))
        self.octave.run(f"save('-v6', {_quoted(self.output)}, {listed});")
        found = loadmat(self.output)
        return {name: found[name] for name in names}

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(0-based inputs with a nonzero last row, int64 ascending; these rows, float64) of the last call."""
        self.octave.run("active = find(any(scores, 2)); rows_left = full(scores(active, :));")
        found = self.fetch("active", "rows_left")
        return found["active"].ravel().astype(np.int64) - 1, np.ascontiguousarray(found["rows_left"])

    def digest(self, out: Any) -> str:
        return digest(*self.rows())

    def passes(self) -> bool:
        """Whether the program's own comparison with the categories that it read holds."""
        return self.octave.run("disp(isequal(find(sum(scores, 2)), truth(:)));") == "1"

    def count_layers(self) -> tuple[np.ndarray, np.ndarray]:
        """(active inputs after each layer, edges of nonzeros in it), int64 (layers,): the program on one layer a call.

        Raises:
            SpdnnError: the layers one by one do not give the output of all in one call.
        """
        step = "y = inferenceReLUvec(layers(k), bias(k), y); survivors(k) = nnz(any(y, 2));"
        work = "edges(k) = full(sum(spones(y), 1) * sum(spones(layers{k}), 2));"
        same = self.octave.run(
            "y = inputs;", f"for k = 1:{self.layers} {work} {step} end", "disp(isequal(y, scores));"
        )  # fmt: skip
        if same != "1":
            raise SpdnnError("the reference program gives another output where it gets one layer at a time")
        found = self.fetch("survivors", "edges")
        return found["survivors"].ravel().astype(np.int64), found["edges"].ravel().astype(np.int64)

    def close(self) -> None:
        self.octave.close()


def _quoted(text: object) -> str:
    """A text as Octave reads it."""
    return "'" + str(text).replace("'", "''") + "'"


def result_of(run: ReferenceRun, network: Network) -> Result:
    """The result of the last call; SpdnnError where the categories are not those that the program read."""
    if not run.passes():
        raise SpdnnError("the reference program's categories are not those of the ground truth that it read")
    alive, rows = run.rows()
    values = rows.astype(np.float32)
    survivors, computed = run.count_layers()
    edges = np.array([network.header(k).edges for k in range(network.depth)], np.int64)
    work = LayerWork(np.concatenate([[run.count], survivors[:-1]]), edges, computed, sparse=True)
    notes = {
        "library": f"{REPOSITORY} {COMMIT[:12]}, GNU Octave {run.version}", "layout": "sparse features",
        "threads_set": "OMP_NUM_THREADS=1", "commit": COMMIT,
    }  # fmt: skip
    return Result(
        run.count, network.outputs, alive, *RowStatistics.of(values), survivors, int(computed.sum()), notes=notes,
        counts=work,
    )  # fmt: skip


def compare(reference: Path, request: RunRequest, command: str) -> list[RunRecord]:
    """Records of our engine and of the reference program on one problem, timed alternately.

    Args:
        reference: as check_reference gave it.
        request: of our engine; an official network with MNIST inputs.
        command: that makes the records again.

    Raises:
        SpdnnError: an output is wrong, or changed while it was timed; Octave ended with an error.
    """
    network = load_network(request)
    inputs = load_named_inputs(request.inputs, network.inputs, request.count, request.mnist)
    kept, results = draw_kept(network, inputs), {}
    truth = verify.official(network.width, inputs.count, network.depth)

    def judge(name: str, entrant: Entrant, out: Any) -> verify.Verdict:
        results[name] = result = out if name == OURS else result_of(entrant.program, network)
        edges = entrant.program.loaded.prepared.edges if name == OURS else None
        verdict = verdict_of(network, result, truth_for(network, inputs, result), edges)
        return replace(verdict, judged=verdict_key(network, inputs, result))

    with tempfile.TemporaryDirectory() as folder:
        files = export(network, inputs, truth.categories, Path(folder))
        makers = {
            OURS: partial(NetworkRun, request, network, inputs, kept),
            NAME: partial(ReferenceRun, reference, files, network.width, network.depth, inputs.count),
        }
        # The load of the machine would count Octave, which is another process.
        entrants, *_ = contest(makers, judge, Pace(request.repeats, request.repeats))
    whole = {}
    for name, entrant in entrants.items():
        run, options = entrant.program, Options(1, values=kept)
        if name == OURS:
            prepared, findings = run.loaded.prepared, run.session.findings
            samples = measure.Samples([run.loaded.read_seconds], [run.loaded.prepare_seconds], entrant.seconds)
        else:
            prepared, findings = Prepared(network, network), {}
            samples = measure.Samples([run.read_seconds], [0.0], entrant.seconds)
        whole[name] = measure.measurement_of(name, prepared, inputs, options, findings, SPAN, results[name], samples)
    # The machine last: its arrays would count as memory of the run.
    whole[NAME] = replace(whole[NAME], peak_memory_bytes=entrants[NAME].program.octave.peak_bytes)
    whole[OURS] = replace(whole[OURS], machine=measure.ceilings(engine(OURS), options))
    identity, case = secrets.token_hex(8), f"reference-{network.width}-{network.depth}.mnist-first-{inputs.count}"
    return [
        record_of(f"{case}.{name}.t1", one, entrants[name].verdict, command, identity, {OURS: request}.get(name))
        for name, one in whole.items()
    ]


def main(words: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("reference", nargs="?", help=f"folder of the program's .m files (default: {FOLDER})")
    options.add_argument("--neurons", type=int, default=1024, help="1024, 4096, 16384 or 65536 (default: 1024)")
    options.add_argument("--layers", type=int, default=120, help="120, 480 or 1920 (default: 120)")
    options.add_argument("--count", type=int, default=6000, help="of the official inputs, the first (default: 6000)")
    options.add_argument("--mnist", help="file of the MNIST training images (default: SPDNN_MIRROR, then downloaded)")
    options.add_argument("--repeats", type=int, default=5, help="timed runs of each program (default: 5)")
    options.add_argument("-o", "--output", required=True, help="folder for the two records")
    args = options.parse_args(words)
    try:
        folder = args.reference or os.environ.get(FOLDER)
        if not folder:
            raise InputError(f"no folder of the reference program: name it, or set {FOLDER}")
        challenge.problem(args.neurons, args.layers)
        reference = check_reference(folder)
        sizes = {name: vars(args)[name] for name in ("neurons", "layers", "count", "repeats")}
        asked = sizes | {"inputs": "mnist", "engine": OURS, "reductions": "dead", "threads": 1}
        request = RunRequest.of(asked | ({"mnist": args.mnist} if args.mnist else {}))
        given = "".join(f" --{name} {value}" for name, value in sizes.items())
        command = f"python benchmarks/octave_reference.py MATLAB{given} -o records"
        records = compare(reference, request, command)
        write_records(args.output, records)
    except SpdnnError as error:
        return fail(str(error))
    for record in records:
        print(f"{record.case}: {median(record.seconds):.4g} s, {record.verdict.categories} categories, all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
