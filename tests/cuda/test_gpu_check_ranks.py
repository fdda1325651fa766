"""Part `ranks` of `make gpu-check` on the CPU shim, each rank a process with shims of its own."""

from pathlib import Path

import pytest
from children import executable
from shim import ShimDevice

pytestmark = pytest.mark.xdist_group("ranks")


@pytest.fixture
def ranks(gpu, on_shim, monkeypatch, set_all):
    """The module of the part, of a small problem on two devices."""
    module, digits = gpu("device_ranks"), ["--inputs", "digits", "--count", 100]
    set_all(
        module, PROBLEM=["--neurons", 1024, "--layers", 2], DIGITS=digits, images=lambda mnist: digits, SHARING=(2,)
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("on_shim")))
    monkeypatch.setenv("SHIM_DEVICES", "2")
    on_shim([ShimDevice(), ShimDevice()])
    return module


@pytest.mark.full("ranks")
def test_ranks_on_one_device_and_on_several(ranks, gpu):
    tally, problem = gpu("tally").Tally(), ["challenge", *ranks.PROBLEM, *ranks.DIGITS]
    ranks.run(tally, None, None)
    assert (tally.failures, tally.not_here, tally.passed) == ([], [], 5)
    with pytest.raises(AssertionError, match="not the output of one rank: digest .*, not another"):
        ranks.same("another", 2, ranks.OWN, problem)
    with pytest.raises(AssertionError, match="2 devices were to be taken"):
        ranks.digest(2, ranks.OWN, [*problem, "--device", 1])
    with pytest.raises(gpu("tally").NotHere, match="there is one device"):
        ranks.same("another", 1, ranks.OWN, problem)


STUBS = {  # of mpiexec; what every case with ranks says of it
    "exit 0": "exit status 0",
    "echo 'rank 1 was killed' >&2; exit 9": "rank 1 was killed",
    "exec sleep 3000": "no end within 0.5 s",
}


@pytest.mark.parametrize("stub", STUBS)
def test_ranks_that_fail_silently_or_never_end(ranks, gpu, set_all, tmp_path, stub):
    executable(tmp_path / "mpiexec", stub)
    set_all(ranks, MPIEXEC=tmp_path / "mpiexec", SECONDS=0.5 if "sleep" in stub else 60)
    tally = gpu("tally").Tally(tell=lambda told: None)
    ranks.run(tally, None, None)
    assert tally.passed == 0
    assert STUBS[stub] in tally.failures[0]
    assert tally.failures[1].startswith("a rank that fails ends the run: ")
