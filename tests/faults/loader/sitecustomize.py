"""Every Python process that finds this on its PYTHONPATH runs with the fault that its environment names (seeded.py)."""

import ctypes
import importlib.util
import os
import sys
import tempfile
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILE, TEXT = (os.environ.get(f"SPDNN_FAULT_{name}", "") for name in ("FILE", "TEXT"))
MODULE, DEVICES = "spdnn.kernels._cpu", "spdnn.kernels.cuda.declarations"


class Seeded(SourceFileLoader):
    """A module whose text has the fault; its bytecode is neither read nor written."""

    def get_data(self, path):
        return TEXT.encode()

    def path_stats(self, path):
        raise OSError


class Devices(SourceFileLoader):
    """The module that reads the CUDA kernels, which finds the faulty file in a copy of its folder."""

    def exec_module(self, module):
        super().exec_module(module)
        self.copy = tempfile.TemporaryDirectory(prefix="spdnn-fault-")
        for path in [*module.FOLDER.glob("*.cu"), *module.FOLDER.glob("*.cuh")]:
            Path(self.copy.name, path.name).write_text(TEXT if path == ROOT / FILE else path.read_text())
        module.FOLDER = Path(self.copy.name)


class Finder:
    """Finds what is not as in the product, before all others."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == MODULE:
            # The number is set before the module starts, by the same library loaded earlier.
            file = os.environ["SPDNN_FAULT_MODULE"]
            ctypes.c_int.in_dll(ctypes.CDLL(file), "spdnn_fault").value = int(os.environ["SPDNN_FAULT"])
            return importlib.util.spec_from_file_location(name, file)
        whole = Path(name.replace(".", "/"))
        if FILE in (f"{whole}.py", f"{whole}/__init__.py"):
            return _spec(name, Seeded)
        return _spec(name, Devices) if name == DEVICES and "/cuda/" in FILE else None


def _spec(name: str, loader: type[SourceFileLoader]) -> ModuleSpec | None:
    path = str(ROOT / FILE) if loader is Seeded else str(ROOT / f"{name.replace('.', '/')}.py")
    return importlib.util.spec_from_file_location(name, path, loader=loader(name, path))


sys.meta_path.insert(0, Finder())
