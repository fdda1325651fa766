"""CUDA kernels: plain CUDA C++ in the `.cu` files next to this, compiled on demand (NVRTC).

A kernel is declared as

    extern "C" __global__ void __launch_bounds__(THREADS) name(
        const float* __restrict__ features, int count)

with parameters of the types in TYPES, or of a macro that names one. Its declaration is the one truth about its
arguments: launches are checked against it. Headers of ours are put in line, so that whatever caches compiled kernels by
their source sees them change. Source: CuPy's examples/gemm (kernels in files, tile sizes as macros).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
STANDARD = "c++17"

# What a kernel may take, and the NumPy type of it.
TYPES = {
    "float": np.dtype(np.float32),
    "half": np.dtype(np.float16),  # of ops.cuh
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "unsigned int": np.dtype(np.uint32),
    "long long": np.dtype(np.int64),
    "unsigned long long": np.dtype(np.uint64),
    "unsigned short": np.dtype(np.uint16),
    "unsigned char": np.dtype(np.uint8),
}
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECLARATION = r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s*{name}\(([^)]*)\)'


@dataclass(frozen=True)
class Parameter:
    """One argument of a kernel: its name, its NumPy type, and whether it is an array on the device."""

    name: str
    dtype: np.dtype
    array: bool


@dataclass(frozen=True)
class Kernel:
    """A kernel at one setting of its macros.

    Attributes:
        file: in this folder; name: in the file.
        threads: of a block; the macro THREADS.
        macros: (name, value) of the others, as the head of the file lists them.
    """

    file: str
    name: str
    threads: int
    macros: tuple[tuple[str, int | str], ...] = ()

    @property
    def defines(self) -> dict[str, int | str]:
        """All macros, THREADS included."""
        return {"THREADS": self.threads, **dict(self.macros)}

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler's arguments, but for the architecture."""
        return (f"-std={STANDARD}", *(f"-D{name}={value}" for name, value in self.defines.items()))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it takes, in order; ValueError where its file declares no such kernel, or a type not in TYPES."""
        return _parameters(self)

    def __str__(self) -> str:
        macros = ", ".join(f"{name}={value}" for name, value in self.defines.items())
        return f"{self.name} ({self.file}; {macros})"


@lru_cache
def source(file: str) -> str:
    """The text of a `.cu` file of this folder, our own headers in line, each of them once."""
    # Headers go in line, depth first, so that a change of one changes the source that compile caches go by.
    seen: set[str] = set()

    def text(name: str) -> str:
        return _INCLUDE.sub(lambda match: once(match[1]), (FOLDER / name).read_text(encoding="utf-8"))

    def once(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        return text(name)

    return text(file)


@lru_cache
def _parameters(kernel: Kernel) -> tuple[Parameter, ...]:
    # The declaration itself is parsed, without comments: there is no second list of parameters that could differ.
    code = _COMMENT.sub("", source(kernel.file))
    match = re.search(_DECLARATION.format(name=kernel.name), code)
    if not match:
        raise ValueError(f"{kernel.file} declares no kernel {kernel.name}")
    parameters = []
    for part in match[1].split(","):
        # The last word is the name; a type may be a macro, whose value at this setting counts.
        words = part.replace("*", " * ").split()
        kind = " ".join(word for word in words[:-1] if word not in ("const", "__restrict__", "*"))
        kind = str(kernel.defines.get(kind, kind))
        if kind not in TYPES:
            raise ValueError(f"{kernel}: parameter {' '.join(words)!r} is of none of the types {', '.join(TYPES)}")
        parameters.append(Parameter(words[-1], TYPES[kind], "*" in words))
    return tuple(parameters)
