"""Which kernel `choose` takes for kernels of given times, on the stand-in's clock.

`python tests/cuda/choices.py` prints the table of docs/explanation/cuda.md. Times are made up, not measured.
"""

from collections.abc import Iterator
from unittest import mock

from recorded_cupy import Cuda

from spdnn.engines.cuda import choice
from spdnn.engines.cuda.schedule import KINDS, PERSISTENT
from spdnn.kernels.cuda.cupy_device import CupyDevice
from spdnn.sources.radixnet import RadixNet

CALL, FILL = 9, 40  # of the host for each call; of the device for a fill of `Device.lead`
ROWS = (  # of one layer with each kernel
    {"persistent": 6, "staged": 5, "ell": 7, "csr": 9},
    {"persistent": 12, "staged": 14, "ell": 16, "csr": 20},
    {"persistent": 60, "staged": 50, "ell": 70, "csr": 90},
)


def choose(takes: dict[str, float], call: float = CALL) -> tuple[str, dict[str, float]]:
    """(kernel that is taken, microseconds that were read) for kernels that take so many microseconds."""
    cuda = Cuda()
    cuda.free, cuda.calling = 1 << 30, call
    cuda.takes = {f"{kind}_layer": takes[kind] for kind in KINDS}
    cuda.takes |= {"persistent_layers": choice.IN_A_ROW * takes[PERSISTENT], "fill": FILL}
    with mock.patch.object(choice, "WARM", 0):
        found = choice.choose(CupyDevice(cuda, 0), RadixNet(64, 2, -0.3), 0, 40)
    (shape,) = found.notes["shapes"]
    return shape["kernel"], {kind: round(1000 * read, 9) for kind, read in shape["seconds_per_layer"].items()}


def table() -> Iterator[str]:
    """Before, `choose` timed launches on an idle stream."""
    names = ", ".join(f"`{kind}`" for kind in KINDS)
    yield f"| microseconds of a layer: {names} | read, before | taken | read, now | taken |"
    yield "|---|---|---|---|---|"
    for takes in ROWS:
        with mock.patch.object(CupyDevice, "seconds_ahead", lambda self, launch, lead: self.seconds(launch)):
            before = choose(takes)
        cells = [f" {_listed(read)} | `{taken}` |" for taken, read in (before, choose(takes))]
        yield f"| {_listed(takes)} |" + "".join(cells)


def _listed(times: dict[str, float]) -> str:
    return ", ".join(f"{times[kind]:g}" for kind in KINDS)


if __name__ == "__main__":
    print(*table(), sep="\n")
