"""What this process may use of the machine: its memory and its cores, within all limits that Linux sets.

The limits: the control groups of the process (version 1 and 2, every level that is mounted), its resource limits
(RLIMIT_AS, `ulimit -v`; RLIMIT_DATA, `ulimit -d`) and its affinity. Every other module asks here. `root` is where the
file systems proc and sysfs lie. The standard library alone: the Makefile runs this file, which prints the cores.
"""

import contextlib
import errno
import math
import os
import re
import resource
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path("/")
# Of each resource limit: its name in the shell, and the line of /proc/self/status that counts against it.
LIMITS = {resource.RLIMIT_AS: ("ulimit -v", "VmSize"), resource.RLIMIT_DATA: ("ulimit -d", "VmData")}
UNLIMITED = 1 << 62  # version 1 writes no limit as a number this large
ARENA_BYTES = 64 << 20  # of address space, that the C library reserves for a thread besides its stack
STACK_BYTES = 8 << 20  # of a thread, where the stack has no limit
# Of address space, before any work: Python with all libraries, and for each core what NumPy's and SciPy's OpenBLAS take
# together. With less, OpenBLAS ends the process, or waits for ever.
LIBRARY_BYTES, BLAS_BYTES, BLAS_CORES = 384 << 20, 84 << 20, 64
# With one of these, libgomp (GCC's OpenMP) makes places of the cores of the process, mostly one of each, and binds the
# thread that loads it to the first. What that thread starts from then on inherits its core, but for OpenMP's threads.
BINDING = "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"
LIBGOMP = re.compile(r"/.*/libgomp[-.\w]*\.so[.\d]*$", re.ASCII)  # also a wheel's own: libgomp-24e2ab19.so.1.0.0
# Parts of the free memory that one user of it may take. The rest is for what the process takes besides, and for what
# other programs take meanwhile; the better a need is known beforehand, the larger its part.
RUN_SHARE = 0.7  # a run without a limit: weights, features and outcomes, which are planned
DEVICE_SHARE = 0.95  # of a device: features, when inputs and weights are there
WEIGHTS_SHARE = 0.6  # of what the ranks of a node may hold: weights and inputs
WINDOW_SHARE = 0.9  # of /dev/shm: the windows of weights that the ranks of a node share
COMPARISON_SHARE = 0.8  # operands and outputs of what is compared, whose sizes follow from the problem
CALLS_SHARE = 0.5  # inputs, references and models of calls, whose sizes are estimated
WORKFLOW_SHARE = 0.75  # the limit of a run in a workflow, where little is free
CEILING_SHARE = 0.25  # each array by which memory is measured
NOT_LOADED = "failed to map segment", "annot allocate memory"  # what the loader says of a library


def affinity() -> set[int]:
    """The numbers of the cores (hardware threads) that this process may run on.

    A thread that libgomp has bound to its first place may run on all of its places: those of the copy that has most,
    for one that is loaded by a bound thread has but that thread's core.
    """
    own = os.sched_getaffinity(0)
    if not binds():
        return own
    if frozenset(own) not in _places:
        copies = [places for path in libgomps() if (places := _places_of(path)) and places[0] == own]
        if not copies:
            return own
        _places[frozenset(own)] = frozenset().union(*(place for places in copies for place in places))
    return set(_places[frozenset(own)])


def binds() -> bool:
    """Whether a variable asks OpenMP to bind its threads."""
    return os.environ.get("OMP_PROC_BIND", "").lower() != "false" and any(map(os.environ.get, BINDING))


def libgomps() -> list[str]:
    """The paths of all copies of libgomp that are loaded in this process."""
    lines = _lines(ROOT / "proc/self/maps")
    return [*dict.fromkeys(match[0] for line in lines if "libgomp" in line and (match := LIBGOMP.search(line)))]


def use_all_cores() -> None:
    """The calling thread, and what it starts from now on, may run on all cores of `affinity()`."""
    with contextlib.suppress(OSError):
        if (cores := affinity()) != os.sched_getaffinity(0):
            os.sched_setaffinity(0, cores)


def use_cores(cores: Collection[int]) -> None:
    """The calling thread, and what it starts from now on, may run on these cores of `affinity()` alone.

    It is for the time before libgomp is loaded, which makes its places of these cores.
    """
    global _undivided
    _undivided = affinity()
    os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def unbound() -> Iterator[None]:
    """Until the block ends, the calling thread may run on all cores of `affinity()`.

    A libgomp that is loaded in it makes its places of all of them, also where another copy has bound the thread.
    """
    own = os.sched_getaffinity(0)
    use_all_cores()
    bound = os.sched_getaffinity(0) != own
    try:
        yield
    finally:
        if bound:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, own)


def usable_cores(root: Path = ROOT, divided: bool = True) -> int:
    """As many cores as this process may use: those it may run on, or fewer where a control group limits their time.

    A limit of one and a half cores is two: threads beyond one use its half. It is read once. Not `divided`: with the
    cores of other ranks, as before `use_cores`.
    """
    return min(len((None if divided else _undivided) or affinity()), _cores_by_time(root))


def memory_bytes(root: Path = ROOT) -> int:
    """Bytes of memory that this process may hold at most: the machine's memory, or the least of its limits."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for limit, _ in _limits(root).values())])


def available_bytes(root: Path = ROOT) -> int | None:
    """Bytes that can be taken now without swapping and within all limits; None where nothing says so.

    File cache that the kernel would give back is free, in a control group too.
    """
    free = kernel_bytes(root / "proc/meminfo", "MemAvailable")
    room = min(tightest(root)[1], math.inf if free is None else free)
    return None if room == math.inf else int(room)


def tightest(root: Path = ROOT) -> tuple[str, float]:
    """(name, bytes left) of the limit that leaves least; without any, ("", infinity)."""
    free = {name: max(0, limit - used) for name, (limit, used) in _limits(root).items()}
    return min(free.items(), key=lambda item: item[1], default=("", math.inf))


def kernel_bytes(path: str | Path, name: str) -> int | None:
    """Bytes that a file of /proc has in kB in its line `name`; None where it has no such line, or is not there."""
    line = next((line for line in _lines(Path(path)) if line.startswith(f"{name}:")), "").split()
    return int(line[1]) * 1024 if len(line) > 1 and line[1].isdigit() else None


def most_threads() -> float:
    """As many threads as this process may have, the first included, before its resource limits leave no room for
    another; infinity without such limits."""
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    each = ARENA_BYTES + (STACK_BYTES if stack == resource.RLIM_INFINITY else stack)
    return min((1 + max(0, limit - used) // each for limit, used in _resource_limits(ROOT).values()), default=math.inf)


def too_small_to_start() -> str | None:
    """A sentence where `ulimit -v` leaves no room for the libraries, which would end the process; or None."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = LIBRARY_BYTES + min(len(affinity()), BLAS_CORES) * BLAS_BYTES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return None
    return (
        f"ulimit -v allows {limit:,} bytes of address space, and the libraries need about {needed:,} on "
        f"{len(affinity())} cores: raise it (ulimit -v unlimited)"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of too little memory: of an array, a thread or a shared library."""
    said = str(error)
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "can't start new thread" in said)
        or (isinstance(error, ImportError) and any(words in said for words in NOT_LOADED))
    )


def out_of_memory(options: Collection[str] = ()) -> str:
    """The sentence for too little memory, with advice that fits.

    Args:
        options: names of what the command takes, "memory", "count" and "threads" among them.
    """
    limits = {limit: name for name, (limit, _) in _resource_limits(ROOT).items()}
    if limits and min(limits) <= memory_bytes():
        fewer = ", or give fewer --threads" if "threads" in options else ""
        return f"out of memory: {limits[min(limits)]} allows this process {min(limits):,} bytes; raise it{fewer}"
    ways = {"memory": "a smaller --memory", "count": "fewer inputs (--count)"}
    advice = " or ".join(way for name, way in ways.items() if name in options)
    free = available_bytes()
    least = "" if free is None else f": {free:,} bytes are free here"
    return f"out of memory{least}" + (f"; give {advice}" if advice else "")


def groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of the control groups of this process that `controller` ("memory" or "cpu") may limit: each group,
    then those above it, up to where their file system is mounted."""
    own = {}
    for line in _lines(root / "proc/self/cgroup"):
        kinds, _, path = line.partition(":")[2].partition(":")
        own |= dict.fromkeys(kinds.split(","), path)
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, system = line.partition(" - ")
        fields, kinds = mount.split(), system.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        kind = {"cgroup2": "", "cgroup": controller}.get(kinds[0])
        if kind is None or kind not in own or (kind and kind not in kinds[2].split(",")):
            continue
        # The file writes a blank in a path as \040.
        top, point = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field) for field in fields[3:5])
        # A container may see its own group as the top, while the names of groups begin at the machine's.
        path, within = Path(own[kind]), Path(top)
        inside = path.relative_to(within) if path.is_relative_to(within) and ".." not in path.parts else Path()
        place = root / point.lstrip("/")
        for depth in range(len(inside.parts), -1, -1):
            yield place.joinpath(*inside.parts[:depth])


_undivided: set[int] | None = None  # what this process could use before `use_cores`
_places: dict[frozenset[int], frozenset[int]] = {}  # all places, by the first one


def _places_of(path: str) -> list[set[int]]:
    """The cores of each place of a libgomp that is loaded; none where it has none, or cannot be asked."""
    import ctypes

    places = []
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: an older one
        library = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_NOW)
        for number in range(library.omp_get_num_places()):
            cores = (ctypes.c_int * library.omp_get_place_num_procs(number))()
            library.omp_get_place_proc_ids(number, cores)
            places.append(set(cores))
    return places


@cache
def _cores_by_time(root: Path) -> float:
    """Cores whose time the control groups allow, rounded up; infinity without a limit."""
    cores = [math.inf]
    for group in groups("cpu", root):
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if words := " ".join(_lines(group / "cpu.max")).split():
            quota, period = (int(word) if word.isdigit() else None for word in (*words, "100000")[:2])
        if quota and period and quota > 0:
            cores.append(math.ceil(quota / period))
    return min(cores)


def _limits(root: Path) -> dict[str, tuple[int, int]]:
    """By the name of every limit of memory: (bytes, bytes used; of a control group without its file cache)."""
    found = _resource_limits(root)
    for group in groups("memory", root):
        files = ("memory.max", "memory.high", "memory.limit_in_bytes")
        limits = [number for name in files if (number := _number(group / name)) is not None and number < UNLIMITED]
        if not limits:
            continue
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
        counts = dict(line.split()[:2] for line in _lines(group / "memory.stat") if len(line.split()) > 1)
        # Version 1 has the numbers of the group alone, and with `total_` those of all groups below it.
        cached = sum(int(counts.get(f"total_{name}", counts.get(name, 0))) for name in ("active_file", "inactive_file"))
        found[f"the memory limit of the control group {group}"] = min(limits), max(0, used - cached)
    return found


def _resource_limits(root: Path) -> dict[str, tuple[int, int]]:
    """By the shell's name of a resource limit that is set: (bytes, bytes used)."""
    limits = {}
    for kind, (name, line) in LIMITS.items():
        if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
            limits[name] = limit, kernel_bytes(root / "proc/self/status", line) or 0
    return limits


def _lines(path: Path) -> list[str]:
    """The lines of a file of the kernel; none where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file of a control group; None: there is none, or it says `max`."""
    word = "".join(_lines(path)).strip()
    return int(word) if re.fullmatch(r"-?\d+", word) else None


if __name__ == "__main__":
    print(usable_cores())
