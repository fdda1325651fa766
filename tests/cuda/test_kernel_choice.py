"""Which kernel `choose` takes, on a clock where the host's calls and the device's kernels take times of their own."""

import pytest

from spdnn.engines.cuda import choice
from spdnn.engines.cuda.choice import IN_A_ROW, LATER, choose, rows_left
from spdnn.engines.cuda.schedule import KINDS, PERSISTENT
from spdnn.formats.radixnet import RadixNet

CALLING = 2  # milliseconds of each call; a fill takes 10


@pytest.fixture
def network(cuda):
    cuda.free = 1 << 30
    return RadixNet(64, LATER + 2, -0.3)


@pytest.mark.parametrize("takes", [0.1, 2, 50], ids="milliseconds of a kernel: {}".format)
@pytest.mark.parametrize("best", KINDS)
def test_the_choice_follows_the_time_of_the_device(device, cuda, little_measured, network, best, takes):
    told = {kind: takes * (1 if kind == best else 1.5) for kind in KINDS}  # of a layer
    cuda.calling, cuda.takes = CALLING, {f"{kind}_layer": one for kind, one in told.items()}
    cuda.takes["persistent_layers"] = IN_A_ROW * told[PERSISTENT]
    found = choose(device, network, 0, 40, later=rows_left(40, True, True))
    assert set(found.kinds) == {best}
    (shape,) = found.notes["shapes"]
    for read in (shape["seconds_per_layer"], shape["seconds_per_layer_later"]):
        assert read == pytest.approx({kind: one / 1000 for kind, one in told.items()})


def test_one_row_is_timed_where_one_will_be_left(device, cuda, network):
    choose(device, network, 0, 40, later=rows_left(40, True, True))
    for name in ("persistent_layers", "staged_layer"):
        rows = {int(values[3].held[0]) for one, _, _, values, _ in cuda.launched if one == name}
        assert rows == {1, choice.TILES_EACH * device.properties.multiprocessors * 32}
    assert (rows_left(40, True, False), rows_left(40, False, False)) == (64, None)
