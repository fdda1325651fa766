"""What a configuration leaves to the machine: decided once, without a network where nothing runs, and kept."""

import shutil
import subprocess

import pytest
import yaml
from refusals import refuses

from spdnn.core import challenge
from spdnn.core.errors import SpdnnError
from spdnn.runs.workflow import config, decisions
from spdnn.runs.workflow.decisions import Decisions, decide, own_cases, read
from spdnn.runs.workflow.targets import MNIST

# As much of NVIDIA's driver as counting devices needs.
DRIVER = """
#include <stdlib.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = atoi(getenv("DEVICES")); return 0; }
int cuDriverGetVersion(int* version) { *version = 99000; return 0; }
"""


@pytest.fixture
def checked(root):
    """A function: the default configuration with these changes, checked."""
    default = yaml.safe_load((root / "config/config.yaml").read_text())
    schema = root / "workflow/schemas/config.schema.yaml"
    return lambda **changes: config.check(own_cases(default, changes), schema)


@pytest.fixture(autouse=True)
def unlimited(monkeypatch):
    """No memory is limited, however little is free."""
    monkeypatch.setattr(decisions, "available_bytes", lambda: None)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder without MNIST, a mirror and a cache; nothing is fetched but what a test lets be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("SPDNN_MIRROR", raising=False)
    monkeypatch.setattr(decisions, "fetch", lambda *_, **__: pytest.fail("something is fetched"))
    monkeypatch.setattr(decisions, "_devices", lambda engines: (0, {}))
    return tmp_path


def cannot(*_, **__):
    raise SpdnnError("no way out")


def decided(given, runs=True, cores=2, elsewhere=False):
    return decide(given, cores, elsewhere, lambda: runs)


def cases(given, made):
    return [(case.engine, case.reductions, case.threads, case.ranks) for case in config.requests(given, made)]


def test_mnist_is_taken_where_it_can_be_had_and_digits_elsewhere(here, checked, monkeypatch):
    tried = []

    def fails(name, folder, mirror, retries, sources):
        (source,) = sources.values()
        tried.append((str(mirror), source.seconds, source.stall, retries))
        raise SpdnnError("no way out")

    # Nothing runs: no network, and nothing is written.
    assert decided(checked(), runs=False).inputs == "digits"
    # A run tries the mirror, then the network, for half a minute; it says why it goes on with digits.
    monkeypatch.setattr(decisions, "fetch", fails)
    made = decided(given := checked(mirror="/mirror"))
    assert tried == [("/mirror", 30, 10, 0)]
    assert made.inputs == "digits"
    assert "no way out" in made.sentences(given)[0]
    assert "--config mnist=FILE" in made.sentences(given)[0]
    assert not list(here.iterdir())
    # Networks that only the reference can judge are left out where that takes minutes, unless digits are asked for.
    ran = {(case.neurons, case.layers) for case in config.requests(checked(), made)}
    problems = {(problem.neurons, problem.layers) for problem in challenge.PROBLEMS}
    assert problems - ran == {(16384, 1920), (65536, 480), (65536, 1920)}
    assert len(config.requests(checked(inputs="digits"), made)) == 17
    monkeypatch.setattr(decisions, "fetch", lambda *_, **__: None)
    assert decided(checked()).sentences(checked())[0] == "inputs: the official ones"
    # At hand: in results/, in a mirror, or given.
    monkeypatch.setattr(decisions, "fetch", fails)
    (here / MNIST).parent.mkdir(parents=True)
    (here / MNIST).touch()
    assert decided(checked(), runs=False).inputs == "mnist"
    shutil.move(here / "results/data", here / "mirror")
    assert decided(checked(mirror=str(here / "mirror")), runs=False).inputs == "mnist"
    assert decided(checked(mnist="images.gz")).inputs == "mnist"
    # Asked for by name, nothing is decided.
    assert decided(checked(inputs=["digits", "mnist"])).inputs is None


def test_what_was_decided_is_kept_and_said_unless_a_file_is_given(here, checked, monkeypatch):
    (here / "results").mkdir()
    monkeypatch.setattr(decisions, "fetch", cannot)
    monkeypatch.setattr(decisions, "_devices", lambda engines: (2, {}))
    decided(checked(), cores=3).write()
    monkeypatch.setattr(decisions, "fetch", lambda *_, **__: pytest.fail("something is fetched"))
    monkeypatch.setattr(decisions, "_devices", lambda engines: pytest.fail("devices are counted"))
    made = decided(checked(), cores=8)
    assert made == read()
    end = "(remove results/decisions.json to decide anew)"
    assert made.kept(checked(), 3, False) == [f"inputs: digits are kept {end}"]
    assert made.kept(checked(), 8, False)[1:] == [f"cores: 3 are kept, and this run has 8 {end}"]
    assert made.kept(checked(), 8, True) == [f"inputs: digits are kept {end}"]
    assert made.kept(checked(inputs="digits", threads=1, ranks=[1, 2]), 8, False) == []
    monkeypatch.setattr(decisions, "available_bytes", lambda: 10**9)
    less = f"memory: no limit is kept, and less than 4,000,000,000 bytes are free {end}"
    assert made.kept(checked(inputs="digits"), 3, False) == [less]
    assert {case.inputs for case in config.requests(checked(), made)} == {"digits"}
    assert decided(checked(mnist="images.gz"), cores=8).inputs == "mnist"
    (here / decisions.FILE).write_text('{"schema": "spdnn-decisions", "version": 1, "inputs": "auto"}')
    refuses(r"^results/decisions.json: ", decided, checked())


@pytest.mark.parametrize("comes", ["a mirror", "a file in the mirror", "a download in results"])
def test_mnist_that_comes_later_is_taken_by_the_next_run_and_by_no_job(here, checked, monkeypatch, comes):
    (here / "results").mkdir()
    monkeypatch.setattr(decisions, "fetch", cannot)
    monkeypatch.setenv("SPDNN_MIRROR", str(here / "there"))
    decided(given := checked()).write()
    folder = {"a mirror": "other", "a file in the mirror": "there", "a download in results": "results/data"}[comes]
    path = here / folder / "mnist/train-images-idx3-ubyte.gz"
    path.parent.mkdir(parents=True)
    path.touch()
    if comes == "a mirror":
        monkeypatch.setenv("SPDNN_MIRROR", str(path.parents[1]))
    monkeypatch.setattr(decisions, "fetch", lambda *_, **__: None)
    assert decide(given, 2, False, lambda: False, anew=False).inputs == "digits"
    assert [decided(given, runs).inputs for runs in (False, True)] == ["mnist"] * 2
    made = decided(given)
    assert made.kept(given, 2, False) == []
    # It is not given up when the mirror is gone again.
    made.write()
    monkeypatch.setattr(decisions, "fetch", cannot)
    monkeypatch.delenv("SPDNN_MIRROR")
    assert decided(given).inputs == "mnist"


def test_devices_that_come_later_are_counted_again(here, checked, monkeypatch):
    (here / "results").mkdir()
    monkeypatch.setattr("spdnn.kernels.cuda.driver.missing_package", lambda: "cupy is missing")
    decided(given := checked(inputs="digits")).write()
    monkeypatch.setattr(decisions, "_devices", lambda engines: (2, {}))
    assert decided(given).devices == 0
    monkeypatch.setattr("spdnn.kernels.cuda.driver.missing_package", lambda: None)
    assert decide(given, 2, False, lambda: False, anew=False).devices == 0
    (made := decided(given)).write()
    assert made.devices == 2
    # Fewer of them are an error of the engine's, not another configuration.
    monkeypatch.setattr(decisions, "_devices", lambda engines: (1, {}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert decided(given).devices == 2


@pytest.mark.parametrize("change", [{"neurons": []}, {"neurons": 1024, "layers": []}, {"inputs": "digits"}])
def test_a_configuration_without_the_challenge_asks_for_no_images(here, checked, change):
    """`fetch` of this test fails it; and what an earlier configuration decided is not said."""
    own = {"network": "w.npz", "inputs": "x.npy"}
    given = checked(**change, cases=[own], threads=1)
    assert decided(given).inputs is None
    (here / "results").mkdir()
    Decisions(inputs="digits", why_inputs="digits, for MNIST could not be fetched", cores=2, devices=0).write()
    assert decided(given).sentences(given) == decided(given).kept(given, 2, False) == []


def test_networks_that_are_left_out_are_told_of_where_there_are_some(here, checked, monkeypatch):
    monkeypatch.setattr(decisions, "fetch", cannot)
    for depth, left in ((120, False), (1920, True)):
        given = checked(neurons=[1024, 16384], layers=depth)
        assert ("are left out" in decided(given).sentences(given)[0]) == left


def test_no_request_holds_a_word(here, checked):
    given = checked(mnist="images.gz")
    found = config.requests(given, decided(given, cores=6))
    assert {case.inputs for case in found} == {"mnist"}
    scaling = [(case.threads, case.ranks) for case in found if (case.layers, case.reductions) == (120, "dead")]
    assert scaling == [(6, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 4)]
    assert sum(case.reductions == "all" for case in found) == 12
    assert {case.threads for case in found if case.reductions == "all"} == {6}
    refuses("config: threads: 'most' is not allowed; .* all, or each", checked, threads="most")


def test_a_configuration_that_chooses_what_runs_has_its_own_cases_alone(here, checked):
    given = checked(neurons=4096, layers=120, inputs="digits")
    assert cases(given, decided(given)) == [("cpu", "all", 2, 1)]
    assert len(cases(given := checked(inputs="digits", repeats=1), decided(given))) == 17


def test_a_machine_with_little_memory_runs_within_a_limit(here, checked, monkeypatch):
    monkeypatch.setattr(decisions, "available_bytes", lambda: 2 * 10**9)
    given = checked(inputs="digits")
    made = decided(given)
    assert {case.memory for case in config.requests(given, made)} == {made.memory} == {1_500_000_000}
    assert "memory: each run is limited to 1,500,000,000 bytes" in made.sentences(given)[-1]
    assert decided(given, elsewhere=True).memory is None
    own = checked(inputs="digits", memory=10**9)
    assert {case.memory for case in config.requests(own, decided(own))} == {10**9}


@pytest.mark.parametrize("count", [0, 1, 4])
def test_devices_are_counted_in_another_process(tmp_path, checked, monkeypatch, count):
    """Of a driver that says what the environment does; CuPy is in the environment of the tests."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("DEVICES", str(count))
    given = checked(inputs="digits")
    made = decided(given)
    assert made.devices == count
    found = [case for case in config.requests(given, made) if case.engine == "cuda"]
    if count == 0:
        assert not found
        told = "GPUs: none used (NVIDIA's driver sees no device here); with one, make setup CUDA=auto adds it"
        assert made.sentences(given) == [told]
        return
    assert made.sentences(given) == [f"GPUs: {count} used"]
    single = [(case.neurons, case.layers, case.reductions) for case in found if case.ranks == 1 and case.threads == 2]
    assert len(set(single)) == len(single) == 24
    ranks = {(case.neurons, case.layers) for case in found if case.threads == 1}
    assert ranks == {(1024, 1920), (16384, 480), (65536, 120)}
    assert {case.ranks for case in found if case.threads == 1} == set(range(1, count + 1))
    # A cluster's jobs find nothing on the host that sends them.
    assert decided(given, elsewhere=True).devices is None


def test_an_engine_that_cannot_use_them_is_left_out_with_its_sentence(here, checked, monkeypatch):
    monkeypatch.setattr(decisions, "_devices", lambda engines: (1, {"cusparse": "cuSPARSE is missing"}))
    given = checked(inputs="digits", device_cases=[{"engine": ["cuda", "cusparse"], "layers": 120, "neurons": 1024}])
    made = decided(given)
    assert made.sentences(given) == ["GPUs: 1 used (cuSPARSE is missing)"]
    assert [one[0] for one in cases(given, made) if one[0] != "cpu"] == ["cuda"]
