"""Nsight Compute's counters of `staged_layer`: part `profile` of gpu_records.py.

As a program it launches what is profiled: layers of official networks on dense features, of so many tiles each.
"""

import csv
import shutil
import sys
from collections.abc import Iterator, Sequence

from tally import NotHere, child

from spdnn.core.network import Layer
from spdnn.engines.cuda.choice import several_layers
from spdnn.engines.cuda.layers import lay_out, to_device
from spdnn.engines.cuda.schedule import STAGED, stage_room
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda.device import Device

WIDTHS = (1024, 4096, 16384)
TILES = 512
SECONDS = 120
METRICS = {  # of a launch, in base units: instructions of warps, multiply-adds of threads, nanoseconds
    "instructions": "smsp__inst_executed.sum",
    "multiply_adds": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "shared_deliveries": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "memory_bytes": "dram__bytes.sum",
    "nanoseconds": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
    "active_warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}


def profiled(widths: Sequence[int] = WIDTHS) -> Iterator[tuple[int, int, Layer]]:
    """(neurons, number, layer): the first, middle and last of the second block, permuted as all later ones are."""
    for neurons in widths:
        block = RadixNet(neurons, 1).block
        network = RadixNet(neurons, 2 * block)
        for k in (block, block + block // 2, 2 * block - 1):
            yield neurons, k, network.layer(k)


def launch(device: Device, widths: Sequence[int] = WIDTHS, tiles: int = TILES) -> None:
    """One launch for each layer that is profiled, in order."""
    for neurons, _, layer in profiled(widths):
        laid = to_device(device, lay_out(layer, STAGED, stage_room(device.properties)))
        source = device.empty(tiles * 32 * neurons, "float32")
        device.fill(source, 0x3D)
        several_layers(device, laid, source, device.empty(source.size, "float32"), 32 * tiles, 1)()
        device.synchronize()


def profile(ordinal: int | None) -> list[dict]:
    """What Nsight Compute counted of each launch.

    Raises:
        NotHere: there is no `ncu`, or it may not count; TooLittleTime: it was stopped.
    """
    if not shutil.which("ncu"):
        raise NotHere("Nsight Compute (ncu) is not installed")
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name", "staged_layer", sys.executable, __file__, *([] if ordinal is None else [str(ordinal)])]
    done = child(command, SECONDS)
    wrong = [
        line.strip("= ") for line in (done.stdout + done.stderr).splitlines() if "==ERROR==" in line or "ERR_" in line
    ]
    if done.returncode or wrong:
        raise NotHere(f"ncu does not count here: {(wrong or [f'exit status {done.returncode}'])[0]}")
    counted, layers = rows_of(done.stdout), list(profiled())
    assert len(counted) == len(layers), f"ncu counted {len(counted)} launches of {len(layers)}"
    return [{"neurons": neurons, "layer": k, **row} for (neurons, k, _), row in zip(layers, counted, strict=True)]


def rows_of(text: str) -> list[dict[str, float]]:
    """The metrics of each launch, from the page `raw` as CSV; what programs print before it is passed over."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    launches = [row for row in csv.DictReader(lines[begin:]) if row["ID"]]  # the row of units has none
    return [{name: float(row[metric].replace(",", "")) for name, metric in METRICS.items()} for row in launches]


if __name__ == "__main__":
    from spdnn.kernels.cuda.cupy_device import open_device

    launch(open_device(int(sys.argv[1]) if len(sys.argv) > 1 else None))
