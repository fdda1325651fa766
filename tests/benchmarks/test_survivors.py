"""The table of active inputs of the official problems, and how it is made."""

import numpy as np
import pytest
import survivors

from spdnn.core import challenge
from spdnn.core.config_tables import rows, table
from spdnn.engines import oracle
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.verify import verdict


def lines(neurons):
    cells = [cells for cells, _ in rows(table("truth/survivors.csv"), verdict.SURVIVORS)]
    return [",".join(one.values()) for one in cells if one["neurons"] == str(neurons)]


@pytest.mark.parametrize("neurons", challenge.WIDTHS)
def test_the_table_has_the_first_layers_of_each_width(neurons):
    numbers = np.array([line.split(",") for line in lines(neurons)], np.int64)
    assert numbers[:, 1].tolist() == [*range(1, 121)]
    exact, least, most = numbers[:, 2:].T
    assert (least <= exact).all()
    assert (exact <= most).all()
    assert (np.diff(exact) <= 0).all()
    assert exact[-1] == challenge.TRUTH_COUNT[neurons]
    for layers in (120, 480):
        found = verdict.official(neurons, layers=layers).active
        assert found.shape == (2, layers)
        assert (found[:, :120] == [least, most]).all()
        assert (found[:, 120:] == [least[-1:], most[-1:]]).all()
    assert (verdict.official(neurons, 120_000, 120).active == 2 * np.array([least, most])).all()
    assert verdict.official(neurons, 1000, 120).active is None


@pytest.mark.needs("mnist")
def test_identical_neurons_change_no_number(mnist_file):
    runs = survivors.counted(1024, mnist_file, 300)
    result, _ = oracle.judge(RadixNet(1024, 120), mnist_inputs(1024, mnist_file).first(300), None, np.arange(1))
    assert runs[0].tolist() == result.survivors.tolist()
    assert len(survivors.table(1024, runs)) == 120


@pytest.mark.full("official")
@pytest.mark.needs("mnist")
def test_the_table_of_1024_is_made_again(mnist_file):
    assert survivors.table(1024, survivors.counted(1024, mnist_file)) == lines(1024)
