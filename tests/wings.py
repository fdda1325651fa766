"""Close wings of the package, each in a process of its own: what cannot be imported then, and what still works.

    python wings.py '[WINGS, {CALL: WINGS}]'    CALL: run, challenge, compile, report (of the record of `run`)

prints JSON: of each wing, the modules outside it that fall with it; of each call, with those wings closed, the lines of
the modules that it imports, or null where it fails.
"""

import importlib
import importlib.abc
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import blake3  # noqa: F401  # libraries are imported once, before the processes are forked
import msgspec.inspect  # noqa: F401
import numpy as np
import scipy.sparse  # noqa: F401

PACKAGE = Path(importlib.util.find_spec("spdnn").origin).parent
REQUEST = {"neurons": 1024, "layers": 3, "inputs": "digits", "count": 60, "threads": 1, "cache": False}


class Closed(importlib.abc.MetaPathFinder):
    """Modules of these wings cannot be imported."""

    def __init__(self, wings):
        self.wings = tuple(f"spdnn.{wing}." for wing in wings)

    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(self.wings):
            raise ModuleNotFoundError(f"closed: {name}", name=name)


def modules():
    """The names of all modules of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(("spdnn", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files]
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


def fallen(wing):
    """The modules outside a wing that cannot be imported without it."""
    from spdnn.core.errors import SpdnnError

    found = []
    for name in modules():
        if not f"{name}.".startswith(f"spdnn.{wing}."):
            try:
                importlib.import_module(name)
            except ImportError as error:  # which names torch where that is absent
                found += [name.removeprefix("spdnn.")] * (error.name or "").startswith("spdnn")
            except SpdnnError:
                pass  # torch is absent
    return found


def run(folder):
    """A request, run and verified."""
    from spdnn.cli import main

    assert main(["run", json.dumps(REQUEST), "--record", str(folder / "run.json")]) == 0


def challenge(folder):
    """A problem of the challenge, by options; then what can run here, and the keys of a configuration."""
    from spdnn.cli import main

    options = ["--neurons", "1024", "--layers", "3", "--inputs", "digits", "--count", "60", "--no-cache"]
    assert main(["challenge", *options]) == 0
    assert main(["info", "--seconds", "0.01"]) == 0


def compiled(folder):
    """A network in memory, compiled and called."""
    import spdnn

    model = spdnn.compile(spdnn.from_matrices([np.eye(3), np.ones((3, 2))], bias=[0, -1], last="relu"))
    assert model([[1, 0, 2]]).tolist() == [[2, 2]]


def page(folder):
    """The page of the record that `run` left in the folder."""
    from spdnn.cli import main

    assert main(["report", str(folder / "run.json"), "-o", str(folder / "page.html")]) == 0


CALLS = {"run": run, "challenge": challenge, "compile": compiled, "report": page}


def reached(call, folder):
    """The lines of the modules of the package that are imported when a call is through."""
    CALLS[call](folder)
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.split(".")[0] == "spdnn"]
    return sum(len(Path(file).read_bytes().splitlines()) for file in files if file and file.endswith(".py"))


def apart(wings, work, *arguments):
    """What `work(*arguments)` returns in a process of its own in which these wings are closed."""
    assert not [name for name in sys.modules if name.startswith("spdnn.")]
    with TemporaryFile() as answer:
        if not (child := os.fork()):
            try:
                sys.meta_path.insert(0, Closed(wings))
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                answer.write(json.dumps(work(*arguments)).encode())
                answer.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        answer.seek(0)
        return json.loads(answer.read() or "null")


if __name__ == "__main__":
    wings, without = json.loads(sys.argv[1])
    found = {wing: apart([wing], fallen, wing) for wing in wings}
    with TemporaryDirectory() as folder:
        lines = {call: apart(closed, reached, call, Path(folder)) for call, closed in without.items()}
    print(json.dumps([found, lines]))
