"""Part `ranks` of `make gpu-check` on the CPU shim, each rank a process with shims of its own."""

from pathlib import Path

import pytest
from shim import ShimDevice
from test_gpu_check import executable

ON_SHIM = Path(__file__).with_name("on_shim")
pytestmark = pytest.mark.xdist_group("ranks")


@pytest.fixture
def ranks(gpu, on_shim, monkeypatch, set_all):
    """The module of the part, of a small problem, and what it found on so many devices."""
    module = gpu("device_ranks")
    digits = ["--inputs", "digits", "--count", 100]
    set_all(module, PROBLEM=["--neurons", 1024, "--layers", 2], DIGITS=digits, images=lambda mnist: digits)
    monkeypatch.setenv("PYTHONPATH", str(ON_SHIM))

    def found(devices=1, **environment):
        on_shim([ShimDevice() for _ in range(devices)])
        for name, value in {"SHIM_DEVICES": str(devices), **environment}.items():
            monkeypatch.setenv(name, value)
        tally = gpu("tally").Tally(tell=lambda told: None)
        module.run(tally, None, None)
        return tally

    module.found = found
    return module


@pytest.mark.parametrize("devices", [1, 2])
def test_ranks_on_one_device_and_on_several(ranks, set_all, capsys, devices):
    if devices > 1:
        set_all(ranks, SHARING=())
    tally = ranks.found(devices)
    assert tally.failures == []
    assert (tally.passed, len(tally.not_here)) == ((5, 1) if devices == 1 else (4, 0))
    assert "ranks that share one device are no faster" in capsys.readouterr().out


def test_a_rank_with_other_bits_or_another_rank_s_device_fails(ranks, set_all):
    set_all(ranks, SHARING=(2,), one_fails=lambda device: None)
    told = ranks.found(2, SHIM_WRONG_RANK="1").failures  # of one rank that is all, nothing is wrong
    assert [failure.split(":")[0] for failure in told] == ["2 ranks on one device", "2 ranks on 2 devices"]
    assert all("not the output of one rank" in failure for failure in told)
    set_all(ranks, OWN="1")
    with pytest.raises(AssertionError, match="devices were to be taken"):
        ranks.digest(2, "1", ["challenge", *ranks.PROBLEM, *ranks.DIGITS, "--reductions", "none"])


STUBS = {  # of mpiexec; what every case with ranks says of it
    "exit 0": "exit status 0",
    "echo 'rank 1 was killed' >&2; exit 9": "rank 1 was killed",
    "exec sleep 3000": "no end within 0.5 s",
}


@pytest.mark.parametrize("stub", STUBS)
def test_ranks_that_fail_silently_or_never_end(ranks, set_all, tmp_path, stub):
    executable(tmp_path / "mpiexec", stub)
    set_all(ranks, MPIEXEC=tmp_path / "mpiexec", SECONDS=0.5 if "sleep" in stub else 60)
    tally = ranks.found()
    assert tally.passed == 0
    assert STUBS[stub] in tally.failures[0]
    assert tally.failures[1].startswith("a rank that fails ends the run: ")


def test_without_mpi_it_is_not_run(ranks, set_all, tmp_path):
    set_all(ranks, MPIEXEC=tmp_path / "mpiexec")
    tally = ranks.found()
    assert (tally.passed, tally.failures, len(tally.not_here)) == (0, [], 2)
    assert "1 rank: mpi4py and the mpiexec of its MPI are not installed next to " in tally.not_here[0]
