"""Seeded faults: the table, the sources that hold them, and processes that run with one.

Faults of C++ are all in one module: in copies of the sources each old text has become `FAULT(n) ? (new) : (old)`, or
`if (FAULT(n)) {new} else {old}` where it is statements. It is built once, for one instruction-set level, and takes the
place of the product's module in processes that have `environment` (loader/sitecustomize.py); those of Python and CUDA
are replaced there as the text is read. The product's sources and builds stay as they are.
Source of the idea: DeMillo, Lipton and Sayward, "Hints on Test Data Selection", Computer 11(4), 1978 (mutation
analysis); Untch, Offutt and Harrold, "Mutation Analysis Using Mutant Schemata", ISSTA 1993 (all in one program).
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import compile_cache
from children import started

from spdnn.kernels import dispatch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = HERE / "table"
SECONDS = 180  # that a test or all problems may take: one that does not end is found too
KERNELS = "spdnn/kernels/cpu"
PAGE = ROOT / "docs/explanation/trust.md"
BEGIN, END = "| --- | --- | --- | --- |\n", "\n<!-- /faults -->"  # of the lines of its table
# What every file of the copy has before its first line; the number is read again at each use, which compilers may not
# move, since a process changes it.
HEADER = "extern volatile int spdnn_fault;\n#define FAULT(n) (spdnn_fault == (n))\n"
DEFINITION = 'extern "C" __attribute__((visibility("default"))) volatile int spdnn_fault = 0;\n'


@dataclass(frozen=True)
class Fault:
    """One fault: `old` is in `file` once, and `new` in its place is wrong.

    Attributes:
        number: from 1; 0 is no fault. table: the file of the table that has it.
        within: a text of the file that is there once and has `old` once, where the file has it more often.
        test: that fails with it, as pytest takes it, from the root.
        what: is wrong, in words.
        blind: why a run that differs passes verification; empty: none does.
    """

    number: int
    table: str
    name: str
    file: str
    what: str
    old: str
    new: str
    test: str
    within: str = ""
    blind: str = ""

    @property
    def compiled(self) -> bool:
        """Whether it is in the module of all faults of C++."""
        return self.file.startswith(KERNELS)

    @property
    def on_device(self) -> bool:
        """Whether it is one of a CUDA kernel."""
        return self.file.endswith((".cu", ".cuh"))

    @property
    def text(self) -> str:
        """What takes the place of `old` in the copy that has all faults."""
        if self.old.rstrip().endswith((";", "}")):
            return f"if (FAULT({self.number})) {{ {self.new} }} else {{ {self.old} }}"
        return f"(FAULT({self.number}) ? ({self.new}) : ({self.old}))"

    def at(self, text: str) -> int:
        """Where `old` begins in the text of its file; ValueError unless it is there once."""
        around = self.within or self.old
        counts = text.count(around), around.count(self.old)
        if counts != (1, 1):
            raise ValueError(f"fault {self.name}: {around!r} is {counts[0]} times in {self.file}")
        return text.index(around) + around.index(self.old)


@cache
def faults() -> tuple[Fault, ...]:
    """The table, file by file in the order of their names."""
    files = {path.stem: tomllib.loads(path.read_text())["fault"] for path in sorted(TABLE.glob("*.toml"))}
    rows = [{"table": name, **row} for name, rows in files.items() for row in rows]
    return tuple(Fault(number, **row) for number, row in enumerate(rows, 1))


def compiled_sources() -> dict[str, str]:
    """The C++ sources by name, with all faults in them."""
    texts = {path.name: path.read_text() for path in sorted((ROOT / KERNELS).glob("*.[ch]pp"))}
    whole = {name: list(text) for name, text in texts.items()}
    for fault in filter(lambda one: one.compiled, faults()):
        name = Path(fault.file).name
        # A list of characters, in which each keeps its place; so old texts that overlap are noticed.
        at = fault.at(texts[name])
        if "" in whole[name][at : at + len(fault.old)]:
            raise ValueError(f"fault {fault.name}: its old text overlaps another's in {fault.file}")
        whole[name][at : at + len(fault.old)] = [fault.text, *[""] * (len(fault.old) - 1)]
    made = {name: HEADER + f'#line 1 "{name}"\n' + "".join(parts) for name, parts in whole.items()}
    return made | {"module.cpp": DEFINITION + made["module.cpp"]}


@cache
def module() -> Path:
    """The compiled module with all faults of C++, from the cache or built now."""
    sources = compiled_sources()
    digest = dispatch.compiled_module().source_digest  # of the product's, whose place it takes
    levels = [level.name for level in dispatch.levels()]
    build = _changed(
        (ROOT / "CMakeLists.txt").read_text(),
        (r'string\(SHA256 source_digest "\$\{digests\}"\)', f"set(source_digest {digest})"),
        # One level, as where there is one.
        (r'MATCHES "x86_64\|AMD64"', 'STREQUAL "none"'),
        (r"generic\|\|16", "generic|-march=x86-64-v3|32" if "x86_64_v3" in levels else "generic||16"),
    )
    python = sys.executable, sys.version

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="spdnn-faults-") as folder:
            copy = Path(folder, KERNELS)
            copy.mkdir(parents=True)
            for name, text in sources.items():
                (copy / name).write_text(text)
            Path(folder, "CMakeLists.txt").write_text(build)
            shutil.copytree(ROOT / "config", Path(folder, "config"))
            nanobind = subprocess.check_output([sys.executable, "-m", "nanobind", "--cmake_dir"], text=True).strip()
            command = ["cmake", "-S", folder, "-B", f"{folder}/build", "-G", "Ninja", f"-Dnanobind_DIR={nanobind}"]
            command += [f"-DPython_EXECUTABLE={sys.executable}"]
            for step in (command, ["cmake", "--build", f"{folder}/build"]):
                done = subprocess.run(step, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise ValueError(f"the faults do not compile:\n{done.stdout[-5000:]}{done.stderr}")
            (built,) = Path(folder, "build").glob("_cpu*.so")
            shutil.copyfile(built, path)

    return compile_cache.entry("faults", [build, *sources.values(), *python], ".so", make)


def _changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        text, found = re.subn(old, new.replace("\\", r"\\"), text)
        if found != 1:
            raise ValueError(f"{old!r} is {found} times in CMakeLists.txt")
    return text


def environment(fault: Fault | None) -> dict[str, str]:
    """Environment variables of a process that runs with a fault; None: with all of them in place and none on."""
    paths = [str(HERE / "loader"), *filter(None, [os.environ.get("PYTHONPATH")])]
    given = {"PYTHONPATH": os.pathsep.join(paths), "SPDNN_FAULT": str(fault.number if fault else 0)}
    given["SPDNN_FAULT_MODULE"] = str(module())
    given["SPDNN_DATA"] = str(compile_cache.folder("faults-data", "inputs"))
    if fault and not fault.compiled:
        text = (ROOT / fault.file).read_text()
        at, given["SPDNN_FAULT_FILE"] = fault.at(text), fault.file
        given["SPDNN_FAULT_TEXT"] = text[:at] + fault.new + text[at + len(fault.old) :]
    return {"OMP_WAIT_POLICY": "passive", **os.environ, **given}


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    Attributes:
        found: its test failed with it, and passed without.
        told: the end of what the test printed, where it was not found.
        problems: of each verified problem: "same", "refused", or "passed" of one that differs from the run without it.
    """

    found: bool
    told: str
    problems: dict[str, str]

    @property
    def blind(self) -> list[str]:
        """The problems that differ and pass verification."""
        return [name for name, state in self.problems.items() if state == "passed"]


def outcome(fault: Fault) -> Outcome:
    """Run the fault's test with and without it, and all problems with it."""
    without, told = tested(fault.test, None)
    found = without == 0
    if found:
        status, told = tested(fault.test, fault)
        found = status in (1, 3) or status < 0  # a test failed; or the process ended within one
    right, run = problems(None), problems(fault)
    return Outcome(found, "" if found else told, {name: _state(right[name], run.get(name)) for name in right})


@cache
def tested(test: str, fault: Fault | None) -> tuple[int, str]:
    """(pytest's exit status, the end of what it printed) of a test, with a fault."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider"]
    command += ["-p", "no:hypothesispytest"]  # which takes a second to import
    status, out = _ended([*command, *shlex.split(test)], fault)
    return status, out[-1500:]


@cache
def problems(fault: Fault | None) -> dict[str, dict]:
    """By name, what problems.py prints of each; one that did not come to its end is missing."""
    program, found = [sys.executable, str(HERE / "problems.py")], {}
    mpiexec = str(Path(sys.executable).parent / "mpiexec")
    commands = [program, [mpiexec, "-n", "2", *program, "two ranks"]]
    if fault and fault.on_device:  # the others run no kernel of a device
        commands, found = [[*program, "CUDA"]], dict(problems(None))
        del found["CUDA"]
    for command in commands:
        _, out = _ended(command, fault)
        for line in filter(lambda line: line.startswith("{"), out.splitlines()):
            told = json.loads(line)
            found[told.pop("problem")] = told
    return found


def _state(right: dict, run: dict | None) -> str:
    if run == right:
        return "same"
    return "passed" if run and run.get("passed") else "refused"


def _ended(command: list[str], fault: Fault | None) -> tuple[int, str]:
    """(exit status, output) of a command with a fault; one that does not end is killed, as a crash is."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # What one that crashes leaves is removed with its folder.
    with (
        tempfile.TemporaryDirectory(prefix="spdnn-fault-") as folder,
        started(command, env=environment(fault) | {"TMPDIR": folder}, cwd=ROOT, **pipes) as process,
    ):
        try:
            out, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
        return process.returncode, out


def row(fault: Fault, outcome: Outcome | None) -> str:
    """The line of a fault in the table of the documentation; without an outcome, all of it but the last cell."""
    file, test = Path(fault.file).name, shlex.split(fault.test)[0].partition("::")[0]
    line = f"| {fault.what} | `{file}` | `{test.removeprefix('tests/')}` |"
    if outcome is None:
        return line
    refused = [name for name, state in outcome.problems.items() if state == "refused"]
    told = f"refused: {'; '.join(refused)}" if refused else "no change"
    if outcome.blind:
        told = f"passed: {'; '.join(outcome.blind)} ({fault.blind})" + f"; {told}" * bool(refused)
    return f"{line} {told} |"


def page(rows: list[str]) -> str:
    """The documentation's page with these lines in its table."""
    text = PAGE.read_text()
    head, tail = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:head] + "\n".join(rows) + "\n" + text[tail:]
