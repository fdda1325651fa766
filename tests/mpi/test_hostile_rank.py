"""One rank of several that is wrong is enough: there is no record."""

import sys
from pathlib import Path

import pytest
from launched import mpiexec

pytestmark = pytest.mark.xdist_group("ranks")
VERIFY = Path(__file__).resolve().parents[1] / "runs/verify"
CODE = f"""
import os, sys
sys.path.insert(0, {str(VERIFY)!r})
import hostile, pytest
from spdnn.cli import main
spoil, *words = sys.argv[1:]
if spoil and os.environ["PMI_RANK"] == "1":
    getattr(hostile, spoil)(pytest.MonkeyPatch())
sys.exit(main(words))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    sys.path.insert(0, str(VERIFY))
    import hostile
    import numpy as np

    from spdnn.formats.store import write_network

    folder, (network, x) = tmp_path_factory.mktemp("problem"), hostile.problem()
    write_network(folder / "net.safetensors", network)
    np.save(folder / "x.npy", x)
    return folder


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("", ""),
        ("layers_skipped", "result.layer_rows: "),
        ("one_row_lost", "categories of the ground truth are missing"),
        ("half_of_the_edges", "edges were computed, and"),
    ],
)
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.full("ranks"))])
def test_a_rank_that_is_wrong_is_found(files, ranks, spoil, said):
    record = files / f"{ranks}-{spoil}.json"
    given = ["--network", files / "net.safetensors", "--inputs", files / "x.npy", "--threads", "1"]
    words = ["infer", *given, "--partition", "static", "--reductions", "dead", "--record", record]
    status, _, told = mpiexec(ranks, sys.executable, "-c", CODE, spoil, *map(str, words))
    assert (status == 0) == (not spoil) == record.exists(), told
    assert said in told
