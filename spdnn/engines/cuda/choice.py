"""Which kernel each layer gets: those that suit are timed on the device, on layers of the network itself.

Layers of one shape get the same kernel, early ones perhaps another than late ones, which have few rows left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.core.errors import MemoryTooSmall, Unsuitable
from spdnn.core.network import Layer, Network
from spdnn.core.numbers import ceil_div
from spdnn.engines.cuda import schedule
from spdnn.engines.cuda.layers import LayerLauncher, LayerLayout, lay_out, to_device, widths
from spdnn.engines.cuda.schedule import CSR, KINDS, PERSISTENT, STAGED
from spdnn.kernels.cuda.device import Device, Properties

MOST_SHAPES = 4  # of layers that are timed; the others get what suits the one with most edges
TILES_EACH = 2  # of inputs for each multiprocessor, in a sample
SAMPLE_BYTES = 1 << 28  # of its features at most
SAMPLES = 5
IN_A_ROW = 4  # layers between two events
WARM = 0.02  # seconds of work before the first sample: clocks of an idle device are low
LATER = 32  # layers, after which few rows are left where rows may leave
LEFT = 32  # of so many rows one is
ROWS_MARGIN = 16  # one row more in so many, where it costs little that fewer are left


@dataclass(frozen=True)
class Choice:
    """The kernels of a network's layers.

    Attributes:
        kinds: of each layer; room: neurons of a stage at most, where one is staged.
        sub_batches: whether a layer took less for each row with as many rows as fit L2, wherever that was timed.
        notes: why, fit for JSON.
    """

    kinds: list[str]
    room: int
    sub_batches: bool
    notes: dict


def rows_left(tiles: int, leaving: bool, searching: bool) -> int | None:
    """Rows that are expected to be left after LATER layers of so many `tiles` of inputs; None where none leaves.
    `leaving`: dead rows leave; `searching`: identical ones are merged too."""
    if not leaving:
        return None
    return 1 if searching else 32 * ceil_div(tiles, LEFT)


def choose(
    device: Device, network: Network, first: int, tiles: int, kind: str | None = None, later: int | None = None
) -> Choice:
    """Kernels for the layers from `first` on; those before it have a kernel already.

    Args:
        tiles: of inputs in a batch; later: rows after LATER layers, where that is estimated (`rows_left`).
        kind: the one to use wherever it can be used, or None: the one that was fastest.

    Raises:
        Unsuitable: `kind` suits none of the layers.
    """
    # Shapes: layers of one shape cost the same, so one of each shape is timed, those with most edges first.
    headers = [network.header(k) for k in range(network.depth)]
    shapes: dict[tuple, list[int]] = {}
    for k in range(first, network.depth):
        shapes.setdefault((headers[k].inputs, headers[k].outputs, headers[k].single_value), []).append(k)
    heaviest = sorted(shapes, key=lambda shape: -sum(headers[k].edges for k in shapes[shape]))
    kinds, notes, room, faster = [CSR] * network.depth, [], schedule.stage_room(device.properties), []
    for shape in heaviest:
        # Candidates: kernels whose buffers fit this device; the layer with most edges stands for its shape.
        members = shapes[shape]
        unsuitable = {name: why for name in KINDS if (why := why_unsuitable(device.properties, name, *shape[:2]))}
        suited = [name for name in ((kind,) if kind else KINDS) if name not in unsuitable]
        layer = network.layer(max(members, key=lambda k: headers[k].edges))
        early, late, parts = {}, {}, {}  # seconds of a layer with each kernel
        if kind is None and len(notes) < MOST_SHAPES:
            layouts: list[LayerLayout] = []
            try:
                for name in suited:
                    layouts.append(to_device(device, lay_out(layer, name, room)))
            except MemoryTooSmall as error:
                unsuitable.update(dict.fromkeys(suited[len(layouts) :], f"not timed: {error}"))
            # Timing: with all inputs, as early layers have them; with the few rows that late layers have left; and with
            # as many of these as fit L2.
            early = _seconds(device, layouts, 32 * tiles, unsuitable)
            if later and members[-1] >= LATER:
                late = _seconds(device, layouts, later, unsuitable)
                rows = 32 * schedule.l2_tiles(device.properties, 4 * max(shape[:2]))
                parts = _seconds(device, layouts, rows, unsuitable) if rows < later else {}
        # The fastest wins; where none was timed, the first that suits, or the staged kernel, which suits any layer.
        best = min(early, key=early.__getitem__) if early else (suited or [STAGED])[0]
        late_best = min(late, key=late.__getitem__) if late else best
        if late_best in parts:
            # A sub-batch beats all rows by its time for each row: samples differ in how many they have.
            sampled = _tiles(device, layer, rows), _tiles(device, layer, later)
            faster.append(parts[late_best] / sampled[0] < late[late_best] / sampled[1])
        for k in members:
            kinds[k] = late_best if k >= LATER else best
        named = {"inputs": shape[0], "outputs": shape[1], "layers": len(members), "kernel": best}
        named |= {"seconds_per_layer": early, "not_suitable": unsuitable}
        notes.append(named | ({"kernel_later": late_best, "seconds_per_layer_later": late} if late else {}))
        notes[-1] |= {"seconds_per_layer_sub_batch": parts, "rows_sub_batch": rows} if parts else {}
    if kind and shapes and kind not in kinds[first:]:
        raise Unsuitable(f"no layer suits the kernel {kind}: {notes[0]['not_suitable'][kind]}")
    why = "asked for by the engine's name, staged where it does not suit" if kind else "the fastest of those timed"
    after = {"later": f"from layer {LATER + 1} on; rows timed: {later:,}"} if later and not kind else {}
    return Choice(kinds, room, bool(faster) and all(faster), {"why": why, **after, "shapes": notes[:MOST_SHAPES]})


def why_unsuitable(properties: Properties, kind: str, inputs: int, outputs: int) -> str | None:
    """Why a kernel cannot take a layer of this shape on such a device, or None."""
    width = max(inputs, outputs)
    if kind == PERSISTENT and not schedule.variants(properties, width, outputs):
        needed = schedule.persistent_shared(1, width)
        return (
            f"two buffers of {width:,} neurons take {needed:,} bytes of shared memory for one input, and a block of "
            f"{properties.name} has {properties.shared_per_block:,}"
        )
    return None


def _seconds(device: Device, layers: Sequence[LayerLayout], count: int, refused: dict[str, str]) -> dict[str, float]:
    """The least seconds that a device takes for `count` rows through one layer, laid out for each kind of kernel. What
    follows a pass is the same for all. What there is no memory for is `refused`."""
    if not layers:
        return {}
    # Sample: enough tiles to fill the device a few times, of one random tile without zeros, so that no row dies.
    layer = layers[0]
    tiles = _tiles(device, layer, count)
    launches: dict[str, Callable[[], None]] = {}
    try:
        lead = device.lead()
        values = np.random.default_rng(0).random((layer.inputs, 32), np.float32)
        source = device.upload(np.tile(values.reshape(-1), tiles))
        target = device.empty(tiles * 32 * layer.outputs, np.float32)
        for layout in layers:
            launches[layout.kind] = several_layers(device, layout, source, target, min(count, 32 * tiles), IN_A_ROW)
    except MemoryTooSmall as error:
        refused.update((layout.kind, f"not timed: {error}") for layout in layers[len(launches) :])
    # Warm-up, then samples in turn, so that a change of the clock frequency meets all kinds alike; the least counts.
    warm_seconds = 0.0
    while launches and warm_seconds < WARM:
        warm_seconds += sum(device.seconds(launch) for launch in launches.values())
    samples = [{name: device.seconds_ahead(launches[name], lead) for name in launches} for _ in range(SAMPLES)]
    return {name: min(sample[name] for sample in samples) / IN_A_ROW for name in launches}


def _tiles(device: Device, layer: Layer | LayerLayout, count: int) -> int:
    """Tiles of a sample for so many rows."""
    bytes_per_tile = max(layer.inputs, layer.outputs) * 128
    enough = TILES_EACH * device.properties.multiprocessors
    return max(1, min(ceil_div(count, 32), enough, SAMPLE_BYTES // bytes_per_tile))


def several_layers(
    device: Device, laid: LayerLayout, source: Any, target: Any, count: int, times: int
) -> Callable[[], None]:
    """What takes `count` rows, none of which leaves, through one layer so many times."""
    # The persistent kernel keeps features in shared memory over several layers, so it is timed on as many at once.
    run, rows = idle_run(device, ceil_div(count, 32), times), device.upload(np.array([count], np.int32))
    inside = times if laid.kind == PERSISTENT and laid.inputs == laid.outputs else 1
    if laid.kind == PERSISTENT:
        several = [laid] * inside
        table = device.upload(np.tile(laid.row(device), inside))
        settings = schedule.variants(device.properties, *widths(several))
        setting = next(setting for setting in settings if count <= setting.most)
        launch = run.layers(0, table, setting.for_any_rows(), several, source, target, rows)
    else:
        launch = run.layer(0, laid, source, target, rows)

    def work(layout: LayerLayout = laid) -> None:  # `table` has the addresses of its arrays, and does not hold them
        for _ in range(times // inside):
            launch()

    return work


def idle_run(device: Device, tiles: int, layers: int = IN_A_ROW) -> LayerLauncher:
    """A Run of `tiles` full tiles in their own slots, in which no row leaves."""
    slots, active = np.arange(32 * tiles, dtype=np.int32), np.zeros(layers * tiles, np.uint32)
    work, failed = np.zeros(layers, np.uint64), np.full(1, layers, np.int32)
    return LayerLauncher(device, tiles, *map(device.upload, (slots, active, work, failed)), layers, tiles)
