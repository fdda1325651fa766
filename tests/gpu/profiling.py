"""Nsight Compute's counters of `staged_layer` beside what was counted before: gpu-check with --profile.

As a program it launches what is profiled: layers of official networks on dense features, of so many tiles each.
"""

import csv
import json
import shutil
import sys
from collections.abc import Sequence

import predicted
from gpus import WARP, Gpu, TileWork
from tally import NotHere, child

from spdnn.engines.cuda.choice import several_layers
from spdnn.engines.cuda.layers import lay_out, to_device
from spdnn.engines.cuda.schedule import STAGED, stage_room
from spdnn.kernels.cuda.device import Device, Properties

WIDTHS = (1024, 4096, 16384)
TILES = 512
SECONDS = 120
# Of TileWork's counts, the metric that counts the same, and how many of it are one.
SAME = {
    "instructions": ("smsp__inst_executed.sum", 1),
    "multiply_adds": ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", WARP),
    "deliveries": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1),
    "l2_bytes": ("lts__t_bytes.sum", 1),
}
OTHERS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "launch__registers_per_thread",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
HEAD = "neurons  layer  " + "  ".join(f"{name + ', predicted':>25} {'counted':>10}" for name in SAME)


def launch(device: Device, widths: Sequence[int] = WIDTHS, tiles: int = TILES) -> None:
    """One launch for each layer that is profiled, in order."""
    for neurons in widths:
        for layer in predicted.layers(neurons):
            laid = to_device(device, lay_out(layer, STAGED, stage_room(device.properties)))
            source = device.empty(tiles * 32 * neurons, "float32")
            device.fill(source, 0x3D)
            several_layers(device, laid, source, device.empty(source.size, "float32"), 32 * tiles, 1)()
            device.synchronize()


def profile(properties: Properties, ordinal: int | None, widths: Sequence[int] = WIDTHS) -> list[dict]:
    """Of each launch what was predicted and what Nsight Compute counted.

    Raises:
        NotHere: there is no `ncu`, or it may not count; TooLittleTime: it was stopped.
    """
    if not shutil.which("ncu"):
        raise NotHere("Nsight Compute (ncu) is not installed")
    metrics = [*(name for name, _ in SAME.values()), *OTHERS]
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics)]
    command += ["--kernel-name", "staged_layer", sys.executable, __file__, *([] if ordinal is None else [str(ordinal)])]
    done = child(command, SECONDS)
    wrong = [
        line.strip("= ") for line in (done.stdout + done.stderr).splitlines() if "==ERROR==" in line or "ERR_" in line
    ]
    if done.returncode or wrong:
        raise NotHere(f"ncu does not count here: {(wrong or [f'exit status {done.returncode}'])[0]}")
    counted = rows_of(done.stdout)
    work = [
        (neurons, k, predicted.ours(layer, gpu_of(properties)))
        for neurons in widths
        for k, layer in enumerate(predicted.layers(neurons))
    ]
    assert len(counted) == len(work), f"ncu counted {len(counted)} launches of {len(work)}"
    return [
        {"neurons": neurons, "layer": k, "predicted": of_launch(one), "counted": row}
        for (neurons, k, one), row in zip(work, counted, strict=True)
    ]


def of_launch(work: TileWork) -> dict[str, float]:
    """What TILES tiles are predicted to take."""
    return {name: TILES * getattr(work, name) for name in SAME}


def rows_of(text: str) -> list[dict[str, float]]:
    """The metrics of each launch, from the page `raw` as CSV; what programs print before it is passed over."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found = []
    for row in csv.DictReader(lines[begin:]):
        if row["ID"]:  # the row of units has none
            counts = {name: float(row[metric].replace(",", "")) / of for name, (metric, of) in SAME.items()}
            found.append(counts | {name: float(row[name].replace(",", "")) for name in OTHERS})
    return found


def gpu_of(properties: Properties) -> Gpu:
    """What predicted.ours needs to know of a device."""
    known = [arch for arch in predicted.TURN[1] if arch <= properties.capability]
    return Gpu(
        properties.name, max(known, default=70), properties.multiprocessors, 1.0, 64, 1, 1, 1.0,
        properties.shared_per_block, properties.shared,
    )  # fmt: skip


def line(row: dict) -> str:
    cells = (f"{row['predicted'][name]:>25.4g} {row['counted'][name]:>10.4g}" for name in SAME)
    return f"{row['neurons']:>7}  {row['layer']:>5}  " + "  ".join(cells)


def text(found: list[dict]) -> str:
    return json.dumps({"launches": found, "tiles": TILES}, indent=1) + "\n"


if __name__ == "__main__":
    from spdnn.kernels.cuda.cupy_device import open_device

    launch(open_device(int(sys.argv[1]) if len(sys.argv) > 1 else None))
