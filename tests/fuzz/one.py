"""Atheris on one target, in a process of its own: python tests/fuzz/one.py TARGET CORPUS [options of libFuzzer...].

run.py starts it, with an empty folder in SPDNN_FUZZ_FOLDER.
"""

import gc
import os
import resource
import sys
from pathlib import Path
from types import FunctionType

import atheris

sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (0, 2)]
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("engines", "cuda", "formats")]
import targets  # noqa: E402

WATCHED = ("spdnn", "tarfile", "zipfile")  # packages whose branches tell Atheris that an input is a new one
MOST = 1 << 30  # bytes of one file written, so that no disk is filled


def watch() -> None:
    """Instrument what was imported: Atheris's own hook passes over packages that are installed to be edited."""
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and str(thing.__module__).split(".")[0] in WATCHED:
            atheris.instrument_func(thing)


def main(name: str, arguments: list[str]) -> None:
    watch()
    target = targets.TARGETS[name]
    folder = Path(os.environ["SPDNN_FUZZ_FOLDER"])
    (folder / "in").mkdir()
    for number, seed in enumerate(target.seeds(folder)):
        (Path(arguments[0]) / f"seed{number}").write_bytes(seed.read_bytes())
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        other = atheris.Mutate(data, most)
        other = target.seal(other) if seed % 4 else other
        return other if len(other) <= most else other[:most]

    options = {"custom_mutator": mutated} if target.seal else {}
    atheris.Setup([sys.argv[0], *arguments], lambda data: targets.judge(name, data, folder / "in") and None, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
