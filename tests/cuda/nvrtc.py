"""Every kernel in use, compiled for every architecture: what the compilers say of it, and whether that was meant.

`python tests/cuda/nvrtc.py` prints it all as a table. The compilers are NVRTC 12.9, of the test environment, and NVRTC
13, in the folder nvrtc13 beside it (envs/nvrtc13.txt). They make machine code, so ptxas has its say, with the options
that CuPy adds to a kernel's own: what is checked here is what runs. What they said is kept (compile_cache.py).
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import compile_cache
from kernel_settings import SETTINGS, Setting

from spdnn.kernels.cuda.declarations import Kernel, source

# Threads and blocks that a multiprocessor holds at most. Source: the CUDA C++ Programming Guide, technical
# specifications per compute capability; all of them have 65,536 registers.
HOLDS = {
    70: (2048, 32),
    75: (1024, 16),
    80: (2048, 32),
    86: (1536, 16),
    89: (1536, 24),
    90: (2048, 32),
    100: (2048, 32),
    120: (1536, 24),
}
TOOLKITS = {12: tuple(HOLDS), 13: tuple(arch for arch in HOLDS if arch >= 75)}  # NVRTC 13 has no sm_70
MATRIX = [(toolkit, arch) for toolkit, architectures in TOOLKITS.items() for arch in architectures]
CUPY_ADDS = ("-ftz=true", "--device-as-default-execution-space")
REGISTERS = 65_536
PARTITIONS, GRANULE = 4, 256  # of a multiprocessor's registers; what a warp is given is a multiple of 256
FOLDERS = {12: Path(sysconfig.get_path("purelib")), 13: Path(sys.prefix) / "nvrtc13"}  # with a compiler's package
PROCESS = Path(__file__).with_name("nvrtc_process.py")


@dataclass(frozen=True)
class Resources:
    """What a block of a kernel takes on one architecture.

    Attributes:
        registers: of a thread; spills: bytes stored and loaded for want of registers; stack: bytes of a thread.
        shared: static bytes of a block; blocks: that a multiprocessor holds at once, by registers and threads.
    """

    kernel: Kernel
    arch: int
    registers: int
    spills: int
    stack: int
    shared: int

    @property
    def blocks(self) -> int:
        """By the rules of cuda_occupancy.h: registers lie in four partitions, and a warp's are in one of them."""
        threads, blocks = HOLDS[self.arch]
        warps = -(-self.kernel.threads // 32)
        given = -(-self.registers * 32 // GRANULE) * GRANULE
        if given * -(-warps // PARTITIONS) * PARTITIONS > REGISTERS:
            return 0  # the launch is refused
        held = REGISTERS // PARTITIONS // given * PARTITIONS
        return min(held // warps, threads // (32 * warps), blocks)


@dataclass(frozen=True)
class Outcome:
    """A setting compiled: its resources, or the compiler's log."""

    setting: Setting
    arch: int
    resources: Resources | None
    log: str

    def faults(self) -> Iterator[str]:
        """Sentences; none when it is as it was meant."""
        found = self.resources
        if found is None:
            yield f"does not compile:\n{self.log}"
            return
        if found.spills:
            yield f"spills {found.spills} bytes"
        if found.stack:
            yield f"keeps {found.stack} bytes of stack"
        if found.registers * self.setting.kernel.threads > REGISTERS:
            yield f"needs {found.registers} registers for each of {self.setting.kernel.threads} threads"
        if found.blocks < self.setting.blocks:
            yield (
                f"fits {found.blocks} times on a multiprocessor, and {self.setting.blocks} were meant"
                f" ({found.registers} registers)"
            )


@dataclass(frozen=True)
class Compiled:
    """All settings, compiled by one toolkit for one architecture; `known`: the architectures that it supports."""

    version: tuple[int, int]
    known: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    def faults(self) -> list[str]:
        return [
            f"{outcome.setting.kernel}, sm_{outcome.arch}: {fault}"
            for outcome in self.outcomes
            for fault in outcome.faults()
        ]


def resources(kernel: Kernel, arch: int, log: str) -> Resources:
    """What ptxas says of one kernel in a log (`--ptxas-options=-v`), the functions that it calls included.

    Raises:
        ValueError: it says nothing of this kernel.
    """
    sections = log.split(f"Compiling entry function '{kernel.name}' for 'sm_{arch}'")
    section = sections[-1].split("Compiling entry function")[0]
    used = re.search(r"Used (\d+) registers", section)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", section)
    if len(sections) != 2 or not used or not frames:
        raise ValueError(f"the log says nothing of {kernel} for sm_{arch}:\n{log}")
    stacks = [*(frame[0] for frame in frames), *re.findall(r"(\d+) bytes cumulative stack", section)]
    shared = re.search(r"(\d+) bytes smem", section)
    spills = sum(int(stored) + int(loaded) for _, stored, loaded in frames)
    return Resources(kernel, arch, int(used[1]), spills, max(map(int, stacks)), int(shared[1]) if shared else 0)


def compiled(toolkit: int, arch: int, settings: Sequence[Setting] = SETTINGS, extra: Iterable[str] = ()) -> Compiled:
    """Compile each source at each of its settings once, in a process of its own, unless the outcome is known.

    Args:
        toolkit: a key of TOOLKITS; arch: 90 for sm_90; extra: more options.

    Raises:
        RuntimeError: the compiling process failed (not: a kernel does not compile).
    """
    added = (f"-arch=sm_{arch}", "--ptxas-options=-v", *CUPY_ADDS, *extra)
    jobs = {
        (setting.kernel.file, setting.kernel.options): (source(setting.kernel.file), [*setting.kernel.options, *added])
        for setting in settings
    }
    sources = {job: _sources(toolkit, *given) for job, given in jobs.items()}
    files = {job: compile_cache.find("nvrtc", given, ".json") for job, given in sources.items()}
    missing = [job for job, file in files.items() if file is None]
    if missing:
        answer = _answer(toolkit, [jobs[job] for job in missing])
        logs = answer.pop("logs")
        for job, log in zip(missing, logs, strict=True):
            text = json.dumps({**answer, "log": log})
            files[job] = compile_cache.entry(
                "nvrtc", sources[job], ".json", lambda path, text=text: path.write_text(text)
            )
    answers = {job: json.loads(file.read_text()) for job, file in files.items()}
    outcomes = tuple(
        _outcome(setting, arch, *answers[setting.kernel.file, setting.kernel.options]["log"]) for setting in settings
    )
    ((version, known),) = {(tuple(answer["version"]), tuple(answer["architectures"])) for answer in answers.values()}
    return Compiled(version, known, outcomes)


def _sources(toolkit: int, text: str, options: list[str]) -> list[str]:
    """All that makes an outcome what it is."""
    return [PROCESS.read_text(), _toolkit(toolkit), text, *options]


@cache
def _toolkit(toolkit: int) -> str:
    """The names and digests of the compiler's files, as its package lists them."""
    (record,) = FOLDERS[toolkit].glob("nvidia_cuda_nvrtc*.dist-info/RECORD")
    return record.read_text()


def _answer(toolkit: int, jobs: list[tuple[str, list[str]]]) -> dict:
    """What a process of this toolkit says of (source, options)."""
    folder = [str(FOLDERS[13])] if toolkit == 13 else []
    done = subprocess.run(
        [sys.executable, str(PROCESS), *folder],
        input=json.dumps([{"source": text, "options": options} for text, options in jobs]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folder)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the process of NVRTC {toolkit} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def _outcome(setting: Setting, arch: int, works: bool, log: str) -> Outcome:
    return Outcome(setting, arch, resources(setting.kernel, arch, log) if works else None, log)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line a kernel, setting and architecture."""
    row = "{:18} {:46} {:>6} {:>9} {:>6} {:>6} {:>7} {:>7} {:>6}".format
    yield row("kernel", "setting", "arch", "registers", "spills", "stack", "shared", "blocks", "meant")
    for outcome in outcomes:
        kernel, found = outcome.setting.kernel, outcome.resources
        setting = " ".join(f"{name}={value}" for name, value in kernel.defines.items())
        told = ("does not compile",) + ("",) * 4
        if found:
            told = (found.registers, found.spills, found.stack, found.shared, found.blocks)
        yield row(kernel.name, setting, f"sm_{outcome.arch}", *told, outcome.setting.blocks)


def main() -> int:
    faults = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # each thread waits for a process
        for done in pool.map(lambda pair: compiled(*pair), MATRIX):
            print(f"\nNVRTC {'.'.join(map(str, done.version))}", *table(done.outcomes), sep="\n")
            faults += done.faults()
    print("", *faults, sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
