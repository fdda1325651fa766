"""DeepSparse, where a user has it: in a process of its own, since it needs another NumPy and other packages than ours.

It is no dependency of spdnn: its licence allows evaluation alone. SPDNN_DEEPSPARSE names the Python that has it.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.bench.libraries import deepsparse_worker
from spdnn.bench.libraries.base import SPARSE, TimedProgram
from spdnn.bench.libraries.onnx import OnnxFile, model_file, precision_of
from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.core.files import variable_path
from spdnn.core.network import Network
from spdnn.core.turns import IDLE, LONGEST_REST, REST
from spdnn.formats.readers import network_files

VARIABLE = "SPDNN_DEEPSPARSE"
# Threads that are bound to cores would stay there whoever else runs on them; and it would report its use to its makers.
SETTINGS = {"NM_BIND_THREADS_TO_CORES": "0", "NM_DISABLE_ANALYTICS": "True"}


class DeepSparse(TimedProgram):
    """The same models, compiled for the shapes of each batch. Inputs and outputs go through files, a turn at a time."""

    name, kind, takes = "deepsparse", SPARSE, (Network, OnnxFile)

    @classmethod
    def missing(cls) -> str | None:
        python = variable_path(VARIABLE)
        if python is None:
            return f"{VARIABLE} does not name the Python of an environment that has DeepSparse"
        if not os.access(python, os.X_OK) or python.is_dir():
            return f"{VARIABLE}: {python} is no program"
        return None

    def __init__(self, network: Network | OnnxFile, threads: int):
        if reason := self.missing():
            raise Unavailable(reason)
        self.folder = tempfile.TemporaryDirectory(prefix="spdnn-")
        self.path, self.matrix_bytes = model_file(network, self.folder.name)
        self.precision, self.threads_used, self.version = precision_of(network), threads, "DeepSparse"
        self.notes = {"threads_set": f"num_cores = {threads}", "layout": "its own, in a process of its own"}
        self.sent: Any = None
        self.log = open(Path(self.folder.name, "log"), "w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # -I: the worker's folder has files of the names of libraries, which are not those that it imports.
        command = [str(variable_path(VARIABLE)), "-I", deepsparse_worker.__file__]
        command += map(str, (REST, LONGEST_REST, IDLE))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, encoding="utf-8",
            env=os.environ | SETTINGS,
        )  # fmt: skip

    def prepare_shapes(self, *x: np.ndarray) -> None:
        shapes = [list(array.shape) for array in x]
        answer = self._ask(model=str(self._copied()), shapes=shapes, threads=self.threads_used)
        self.version, self.sent = f"DeepSparse {answer['version']}", None

    def _copied(self) -> Path:
        """A copy of the model with its weights: DeepSparse writes the shapes into the file that it is given."""
        place = Path(self.folder.name, "copy")
        shutil.rmtree(place, ignore_errors=True)
        for file in network_files(self.path):
            copy = place / os.path.relpath(file, self.path.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        return place / self.path.name

    def convert_inputs(self, *x: np.ndarray) -> tuple:
        return x

    def turn(self, inputs: Sequence[tuple]) -> list:
        if self.sent is not inputs:
            file = Path(self.folder.name, "inputs.npz")
            np.savez(file, **{f"{call}.{k}": x for call, each in enumerate(inputs) for k, x in enumerate(each)})
            self._ask(inputs=str(file))
            self.sent = inputs
        file = Path(self.folder.name, "outputs.npz")
        answer = self._ask(outputs=str(file))
        self.own_seconds, self.own_processor_seconds = answer["seconds"], answer["processor_seconds"]
        outs: list[list[np.ndarray]] = [[] for _ in inputs]
        with np.load(file) as arrays:
            for call, k in sorted(tuple(map(int, name.split("."))) for name in arrays.files):
                outs[call].append(arrays[f"{call}.{k}"])
        return outs

    def __call__(self, x: tuple) -> list:
        return self.turn([x])[0]

    def arrays(self, out: list) -> Sequence[np.ndarray]:
        return out

    def _ask(self, **question: Any) -> dict:
        """The worker's answer; SpdnnError where it cannot give one."""
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as error:  # it has ended
            self.log.seek(0)
            *_, last = ["nothing", *(line for line in self.log.read().splitlines() if line.strip())]
            raise SpdnnError(f"the process of DeepSparse ended; it said last: {last}") from error
        if "error" in answer:
            raise SpdnnError(answer["error"])
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()
        self.folder.cleanup()
