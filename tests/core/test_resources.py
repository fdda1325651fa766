"""Limits of memory and cores: trees of files as Linux has them, and processes with limits of their own."""

import math
import os
import subprocess
import sys

import pytest

from spdnn.core import resources
from spdnn.engines import memory

MIB = 1 << 20
V2 = "30 25 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "31 25 0:27 {top} /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{kinds}\n"


@pytest.fixture
def system(tmp_path):
    """A function that writes the files of /proc and /sys; the root of the tree."""

    def write(groups, mounts, files, free=100 * MIB):
        content = {
            "proc/self/cgroup": groups,
            "proc/self/mountinfo": "22 1 0:21 / /proc rw - proc proc rw\n" + mounts,
            "proc/meminfo": f"MemTotal: 999999999 kB\nMemAvailable: {free // 1024} kB\n",
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        }
        for name, text in content.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


def two(limit, used, cached=0):
    """The files of a group of version 2."""
    stat = f"anon 5\nfile 9\nactive_file {cached // 2}\ninactive_file {cached - cached // 2}\n"
    return {"memory.max": f"{limit}\n", "memory.high": "max\n", "memory.current": f"{used}\n", "memory.stat": stat}


def one(limit, used, cached=0):
    """The files of a group of version 1."""
    return {
        "memory.limit_in_bytes": f"{limit}\n",
        "memory.usage_in_bytes": f"{used}\n",
        "memory.stat": f"cache 1\ninactive_file 1\ntotal_inactive_file {cached}\ntotal_active_file 0\n",
    }


def at(place, files):
    return {f"{place}{name}": text for name, text in files.items()}


OWN = "0::/jobs/mine\n"
NONE = 9223372036854771712
MEMORY = {
    "no group": ("", "", {}, 100),
    "the group itself": (OWN, V2.format(top="/"), at("jobs/mine/", two(40 * MIB, 10 * MIB)), 30),
    "file cache is free": (OWN, V2.format(top="/"), at("jobs/mine/", two(40 * MIB, 30 * MIB, 20 * MIB)), 30),
    "a group above": (OWN, V2.format(top="/"),
                      at("jobs/mine/", two("max", 0)) | at("jobs/", two(50 * MIB, 20 * MIB)), 30),
    "the mount itself, of a container": ("0::/\n", V2.format(top="/"), two(60 * MIB, 5 * MIB), 55),
    "a container that sees the machine's names": ("0::/docker/abc\n", V2.format(top="/docker/abc"),
                                                  two(60 * MIB, 5 * MIB), 55),
    "a group beside the mount": ("0::/../other\n", V2.format(top="/"), two(60 * MIB, 5 * MIB), 55),
    "memory.high": (OWN, V2.format(top="/"),
                    at("jobs/mine/", two(90 * MIB, 0) | {"memory.high": f"{20 * MIB}\n"}), 20),
    "more used than allowed": (OWN, V2.format(top="/"), at("jobs/mine/", two(10 * MIB, 11 * MIB)), 0),
    "more than the machine has": (OWN, V2.format(top="/"), at("jobs/mine/", two(1 << 50, 0)), 100),
    "version 1": ("4:memory:/slurm/job\n3:cpu,cpuacct:/x\n", V1.format(top="/", name="memory", kinds="memory"),
                  at("memory/slurm/job/", one(40 * MIB, 30 * MIB, 20 * MIB)), 30),
    "version 1, a group above": ("4:memory:/slurm/job\n", V1.format(top="/", name="memory", kinds="memory"),
                                 at("memory/slurm/job/", one(NONE, 0)) | at("memory/slurm/", one(25 * MIB, 0)), 25),
    "version 1 beside 2, and a blank": ("4:memory:/a b\n0::/\n",
                                        V1.format(top="/", name="me\\040m", kinds="memory") + V2.format(top="/"),
                                        at("me m/a b/", one(25 * MIB, 0)), 25),
    "another controller": ("4:cpu:/job\n", V1.format(top="/", name="cpu", kinds="cpu"),
                           at("cpu/job/", one(1, 0)), 100),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMORY)
def test_memory_is_the_least_of_all_limits(system, case):
    groups, mounts, files, free = MEMORY[case]
    root = system(groups, mounts, files)
    assert resources.available_bytes(root) == free * MIB
    name, _ = resources.tightest(root)
    assert (name == "") == (not files or case == "another controller")
    assert resources.memory_bytes(root) == min(
        [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
         *(int(text) for name, text in files.items() if name.endswith(("max", "high", "limit_in_bytes"))
           and text != "max\n" and name != "cpu/job/memory.limit_in_bytes")]
    )  # fmt: skip


def test_nothing_that_says_what_is_free(tmp_path):
    assert resources.available_bytes(tmp_path) is None
    assert resources.tightest(tmp_path) == ("", math.inf)


CORES = {
    "no limit": (OWN, V2.format(top="/"), {"jobs/mine/cpu.max": "max 100000\n"}, 8),
    "a part of a core": (OWN, V2.format(top="/"), {"jobs/mine/cpu.max": "20000 100000\n"}, 1),
    "one and a half": (OWN, V2.format(top="/"), {"jobs/mine/cpu.max": "150000 100000\n"}, 2),
    "more than there are": (OWN, V2.format(top="/"), {"jobs/mine/cpu.max": "6400000 100000\n"}, 8),
    "a group above": (OWN, V2.format(top="/"), {"jobs/mine/cpu.max": "500000 100000", "cpu.max": "30000 10000"}, 3),
    "version 1": ("3:cpu,cpuacct:/x\n", V1.format(top="/", name="cpu,cpuacct", kinds="cpu,cpuacct"),
                  {"cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}, 4),
    "version 1, no limit": ("3:cpu:/x\n", V1.format(top="/", name="cpu", kinds="cpu"),
                            {"cpu/x/cpu.cfs_quota_us": "-1\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 8),
}  # fmt: skip


@pytest.mark.parametrize("case", CORES)
def test_cores_are_those_whose_time_is_allowed(system, monkeypatch, case):
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(8)))
    groups, mounts, files, cores = CORES[case]
    assert resources.usable_cores(system(groups, mounts, files)) == cores


# By case: the thread's own cores, a variable, places of each copy of libgomp, and the cores that the process may use.
BOUND = {
    "nothing is bound": ({0, 1, 2}, None, [], {0, 1, 2}),
    "its affinity was changed": ({1}, None, [[{0}, {1}, {2}]], {1}),
    "before libgomp is loaded": ({0, 1, 2}, "OMP_PROC_BIND=true", [], {0, 1, 2}),
    "the first place": ({0}, "OMP_PROC_BIND=true", [[{0}, {1}, {2}]], {0, 1, 2}),
    "places of two hardware threads": ({0, 4}, "OMP_PLACES=cores", [[{0, 4}, {1, 5}]], {0, 1, 4, 5}),
    "places in another order": ({3}, "GOMP_CPU_AFFINITY=3 1", [[{3}, {1}]], {1, 3}),
    "a copy that a bound thread loaded": ({0}, "OMP_PROC_BIND=close", [[{0}], [{0}, {1}]], {0, 1}),
    "one core is allowed": ({0}, "OMP_PROC_BIND=true", [[{0}]], {0}),
    "a copy without places": ({0}, "OMP_PROC_BIND=true", [[]], {0}),
    "affinity was changed after binding": ({2}, "OMP_PROC_BIND=true", [[{0}, {1}, {2}]], {2}),
    "binding is off": ({0}, "OMP_PROC_BIND=FALSE", [[{0}, {1}]], {0}),
}


@pytest.mark.parametrize("case", BOUND)
def test_cores_are_those_of_the_process_and_not_of_a_bound_thread(set_all, monkeypatch, case):
    own, variable, copies, cores = BOUND[case]
    for name in resources.BINDING:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(*variable.split("="))
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(own))
    set_all(resources, _places={}, libgomps=lambda: range(len(copies)), _places_of=lambda copy: copies[copy])
    assert resources.affinity() == cores
    assert resources.affinity() == cores  # from what it keeps


def test_copies_of_libgomp_are_found_by_their_names(set_all, tmp_path):
    paths = ["/usr/lib/libgomp.so.1.0.0", "/a b/x.libs/libgomp-24e2ab19.so.1", "/usr/lib/libgomp.so.1.0.0",
             "/opt/libgomp-notes.txt", "/usr/lib/libgo.so.1", "[heap]", ""]  # fmt: skip
    (tmp_path / "proc/self").mkdir(parents=True)
    lines = "".join(f"7f00-7f01 r-xp 00000000 08:01 17     {path}\n" for path in paths)
    (tmp_path / "proc/self/maps").write_text(lines)
    set_all(resources, ROOT=tmp_path)
    assert resources.libgomps() == paths[:2]


def test_the_makefile_asks_the_file_itself():
    done = subprocess.run([sys.executable, "-I", resources.__file__], capture_output=True, text=True, check=True)
    assert int(done.stdout) == resources.usable_cores()


def test_a_limit_of_the_system_is_below_one_that_is_given(monkeypatch):
    monkeypatch.setattr(memory, "tightest", lambda: ("ulimit -v", 5 * MIB))
    held = memory.resident_bytes()
    assert held < memory.limit_bytes(1 << 50) < held + 50 * MIB
    assert memory.limit_bytes(1000) == 1000
    assert memory.more_memory(held) == "--memory"
    assert memory.more_memory(1 << 50) == "raise ulimit -v"


ENOUGH = resources.LIBRARY_BYTES + min(len(os.sched_getaffinity(0)), resources.BLAS_CORES) * resources.BLAS_BYTES
LIMITED = {
    "the libraries alone": ("ulimit -v", 50 * MIB, [], "ulimit -v allows 52,428,800 bytes of address space, "),
    "threads": ("ulimit -v", ENOUGH, ["--threads", "999"],
                "--threads 999: the limit of address space (ulimit -v) has room for "),
    "room enough": ("ulimit -v", ENOUGH, [], ""),
    "data": ("ulimit -d", ENOUGH, [], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITED)
def test_a_process_with_a_resource_limit(tmp_path, case):
    import numpy as np
    import scipy.sparse as sp

    kind, limit, words, sentence = LIMITED[case]
    sp.save_npz(tmp_path / "w.npz", sp.random_array((4, 3), density=0.5))
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    command = ["infer", "--network", "w.npz", "--inputs", "x.npy", "--last", "none", "--values", "y.npy", *words]
    shell = ["sh", "-c", f'{kind} {limit // 1024} && exec "$@"', "sh", sys.executable, "-m", "spdnn", *command]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if sentence else 0), done.stderr
    said = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert len(said) == (1 if sentence else 0)
    assert "".join(said).startswith(f"spdnn: {sentence}" if sentence else "")
    assert (tmp_path / "y.npy").exists() == (not sentence)


OUT = {
    MemoryError(): True, OSError(12, "Cannot allocate memory"): True, OSError(2, "No such file"): False,
    RuntimeError("can't start new thread"): True, RuntimeError("other"): False,
    ImportError("x.so: failed to map segment from shared object"): True, ImportError("No module named x"): False,
}  # fmt: skip


@pytest.mark.parametrize(("error", "out"), OUT.items(), ids=map(repr, OUT))
def test_what_too_little_memory_raises(error, out):
    assert resources.is_out_of_memory(error) == out


def test_the_advice_fits_the_limit_and_the_command(set_all):
    free = f"{100 * MIB:,} bytes are free here"
    set_all(resources, available_bytes=lambda: 100 * MIB, _resource_limits=lambda root: {})
    assert resources.out_of_memory(["memory", "count", "threads"]) == (
        f"out of memory: {free}; give a smaller --memory or fewer inputs (--count)"
    )
    assert resources.out_of_memory(["output"]) == f"out of memory: {free}"
    set_all(resources, _resource_limits=lambda root: {"ulimit -v": (MIB, 0)})
    said = "out of memory: ulimit -v allows this process 1,048,576 bytes; raise it"
    assert resources.out_of_memory() == said
    assert resources.out_of_memory(["memory", "threads"]) == f"{said}, or give fewer --threads"
