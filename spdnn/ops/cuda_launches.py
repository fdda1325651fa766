"""Launches of the operations' kernels: from arrays and a setting to kernel, grid and arguments. Nothing is run here.

The kernels, and what they need of shapes and addresses, are in spdnn/kernels/cuda/ops_*.cu; their settings in
spdnn/kernels/cuda/ops.py. Arrays are the device's own; those of a topology are in `DeviceTopology`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spdnn.core.numbers import ceil_div
from spdnn.kernels.cuda import ops
from spdnn.kernels.cuda.declarations import Kernel
from spdnn.kernels.cuda.device import Device
from spdnn.kernels.cuda.ops import THREADS, Tile
from spdnn.ops.topology import Topology

WARP = 32
WARPS = THREADS // WARP
MOST_VECTORS = 1 << 32  # that staged indices reach, in vectors of B
USUAL_COLUMNS = 64  # of the tile that is taken without a search, where there are so many
LEAST_SPAN, WARPS_OF_ROW = 256, 16  # nonzeros that a warp of sddmm takes at least; warps of the longest row
FEW_THREADS, FEW_WARPS = 1024, 32  # of a multiprocessor: fewer threads of spmm, or warps of sddmm, wait for their loads
FEW_PARTS = 64  # warps of the longest row of sddmm where there are few
SEQUENTIAL, SPREAD = 0, 1  # tile after tile, or tiles spread over the multiprocessors (`placed` in ops_spmm.cu)
WAVES = 32  # blocks on a multiprocessor of kernels that stride over their work


class Launch(NamedTuple):
    """What `Device.bind` takes."""

    kernel: Kernel
    blocks: int
    arguments: Mapping[str, Any]
    sizes: Mapping[str, int]


class Epilogue(NamedTuple):
    """What follows a product before its result is stored.

    Attributes:
        bias: an array of the device; bias_step: 1, or 0 where one number is added everywhere.
        low, high: the bounds of the activation.
    """

    bias: Any
    bias_step: int
    low: float
    high: float


class LaunchPlan(NamedTuple):
    """An operation on its arrays.

    Attributes:
        settings: that suit, fit for JSON; the first is the usual one.
        sizes: what the best setting may depend on.
        operations: multiply-adds, counted twice.
        launch: with a setting.
    """

    settings: tuple
    sizes: tuple[int, ...]
    operations: int
    launch: Callable[[Any], Launch]


class DeviceTopology:
    """A topology's arrays on a device: they stay there as long as the topology is used."""

    def __init__(self, device: Device, topology: Topology):
        self.longest = int(topology.lengths.max())
        padded = np.zeros(max(1, ceil_div(topology.nnz, ops.STEP)) * ops.STEP, topology.columns.dtype)
        padded[: topology.nnz] = topology.columns
        self.arguments = {
            "offsets": device.upload(topology.offsets),
            "columns": device.upload(padded.view(np.uint16)),
            "index_bytes": padded.itemsize,
            "order": device.upload(topology.order),
        }


def spmm(device: Device, placed: DeviceTopology, topology: Topology, values, b, epilogue: Epilogue, out) -> LaunchPlan:
    """C = activation(A B + bias)."""
    (rows, inner), (batch, _, width) = topology.shape, b.shape
    dtype, multiprocessors = np.dtype(out.dtype), device.properties.multiprocessors
    common = {
        **placed.arguments, "values": values, "values_step": topology.nnz if len(values) > 1 else 0, "b": b,
        **epilogue._asdict(), "c": out,
        "rows": rows, "inner": inner, "width": width, "batch": batch,
    }  # fmt: skip

    def launch(setting: tuple[int, ...]) -> Launch:
        *cut, order = setting
        tile = Tile(*cut)
        scaled = inner * (width // tile.vector) <= MOST_VECTORS
        scale, unit = (width // tile.vector, tile.vector) if scaled else (1, width)
        over = multiprocessors if order == SPREAD else 1
        blocks = grid(ceil_div(rows, tile.rows), ceil_div(width, tile.columns) * batch, over)
        own = {"scale": scale, "unit": unit * dtype.itemsize, "multiprocessors": over}
        return Launch(ops.spmm(dtype, tile), blocks, {**common, **own}, {"c": batch * rows * width})

    size = vector(device, ops.SPMM_VECTORS[dtype], width, b, out)
    few = batch * rows * width // size < FEW_THREADS * multiprocessors
    settings = spmm_settings(dtype, width, size, few)
    return LaunchPlan(settings, (*topology.shape, width, batch), 2 * topology.nnz * width * batch, launch)


@lru_cache(1024)
def spmm_settings(dtype: np.dtype, width: int, size: int, few: bool = False) -> tuple[tuple[int, ...], ...]:
    """(*tile, order of the tiles) worth trying for so many columns, loaded by vectors; `few`: threads."""
    tiles = [tile for tile in ops.SPMM_TILES[dtype] if tile.vector == size]
    covering = [tile.columns for tile in tiles if tile.columns >= width]
    fit = [tile for tile in tiles if tile.columns <= min(covering, default=width)]
    usual = next((tile for tile in fit if tile.columns >= min(width, USUAL_COLUMNS)), fit[-1])
    orders = (
        (*tile, order) for order in (SPREAD, SEQUENTIAL) for tile in sorted(fit, key=lambda fitting: fitting != usual)
    )
    others = (tile for tile in ops.SPMM_FEW_TILES[dtype] if few and tile.vector <= size)
    return (*orders, *((*tile, SPREAD) for tile in others))


def grid(groups: int, tiles: int, multiprocessors: int) -> int:
    """Blocks of spmm, as its `placed` numbers them."""
    side = min(multiprocessors, tiles)
    wide = multiprocessors // side
    return ceil_div(tiles, side) * ceil_div(groups, wide) * side * wide


def sddmm(device: Device, placed: DeviceTopology, topology: Topology, q, k, scale, out) -> LaunchPlan:
    """scale * Q K^T at the nonzeros."""
    (rows, keys), (batch, _, depth) = topology.shape, q.shape
    dtype = np.dtype(out.dtype)
    size, warps = vector(device, ops.VECTORS[dtype], depth, q, k), FEW_WARPS * device.properties.multiprocessors
    common = {
        **placed.arguments, "q": q, "k": k, "scale": scale, "out": out, "rows": rows, "keys": keys, "depth": depth,
        "batch": batch, "nnz": topology.nnz,
    }  # fmt: skip

    def launch(setting: tuple[int, int]) -> Launch:
        span, unroll = setting
        parts = max(1, ceil_div(placed.longest + ops.STEP - 1, span))
        blocks = max(1, ceil_div(batch * rows * parts, WARPS))
        arguments = {**common, "span": span, "parts": parts}
        return Launch(ops.sddmm(dtype, size, unroll), blocks, arguments, {"out": batch * topology.nnz})

    spans = sddmm_spans(placed.longest, topology.nnz / rows, batch * topology.nnz / warps)
    unrolls = (ops.DOT_UNROLL[size], ops.DEEP_UNROLL)[: 1 if depth <= WARP else 2]
    settings = tuple((span, unroll) for span in spans for unroll in unrolls)
    return LaunchPlan(settings, (*topology.shape, depth, batch), 2 * topology.nnz * depth * batch, launch)


def sddmm_spans(longest: int, mean: float, fair: float) -> tuple[int, ...]:
    """Nonzeros of a row that a warp of sddmm takes: most rows at once, and the longest in not too many parts; or fewer,
    where there would be few warps (`fair`: nonzeros of a warp where there are not)."""
    whole = max(LEAST_SPAN, 2 * mean, longest / WARPS_OF_ROW), max(fair, longest / FEW_PARTS, 1)
    usual, small = (32 * int(ceil_div(int(np.ceil(nonzeros)), 32)) for nonzeros in whole)
    return (small, usual) if small < usual else (usual,)


def softmax(device: Device, placed: DeviceTopology, topology: Topology, values, scale, out) -> LaunchPlan:
    """softmax(scale * values) by rows."""
    batch, nnz = values.shape
    arguments = {
        "offsets": placed.arguments["offsets"], "order": placed.arguments["order"], "values": values, "scale": scale,
        "out": out, "rows": topology.rows, "batch": batch, "nnz": nnz,
    }  # fmt: skip
    kernel = ops.rowwise("sparse_softmax", np.dtype(out.dtype))
    return _only(Launch(kernel, ceil_div(batch * topology.rows, WARPS), arguments, {"out": batch * nnz}))


def gather(device: Device, values, permutation, out) -> LaunchPlan:
    """values[:, permutation]; the permutation on the device."""
    batch, nnz = values.shape
    arguments = {"values": values, "permutation": permutation, "out": out, "nnz": nnz, "batch": batch}
    blocks = max(1, min(ceil_div(nnz, THREADS), WAVES * device.properties.multiprocessors))
    return _only(Launch(ops.rowwise("gather_values", np.dtype(out.dtype)), blocks, arguments, {"out": batch * nnz}))


def attention(device: Device, placed: DeviceTopology, topology: Topology, q, k, v, scale, out) -> LaunchPlan:
    """softmax(scale * Q K^T at the nonzeros) V."""
    (rows, keys), (batch, _, depth), width = topology.shape, q.shape, v.shape[-1]
    dtype = np.dtype(out.dtype)
    arguments = {
        **placed.arguments, "q": q, "k": k, "v": v, "scale": scale, "out": out, "rows": rows, "keys": keys,
        "depth": depth, "width": width, "batch": batch,
    }  # fmt: skip
    size = vector(device, ops.VECTORS[dtype], depth, q, k)
    if vector(device, (ops.WIDE[size], 1), width, v, out) < ops.WIDE[size]:
        size = 1
    warps = batch * rows * ceil_div(width, ops.ATTENTION_COLUMNS)
    launch = Launch(ops.attention(dtype, size), ceil_div(warps, WARPS), arguments, {"out": batch * rows * width})
    return _only(launch, (*topology.shape, depth, width, batch), 2 * topology.nnz * (depth + width) * batch)


def depthwise(device: Device, x, weights, epilogue: Epilogue, stride, nhwc, out) -> LaunchPlan:
    """3 x 3 convolution of each channel."""
    images, channels = x.shape[0], x.shape[3 if nhwc else 1]
    (height, width), (out_height, out_width) = (a.shape[1:3] if nhwc else a.shape[2:] for a in (x, out))
    arguments = {
        "x": x, "weights": weights, **epilogue._asdict(), "out": out,
        "images": images, "channels": channels, "height": height, "width": width, "out_height": out_height,
        "out_width": out_width, "stride": stride,
    }  # fmt: skip
    dtype, most = np.dtype(out.dtype), WAVES * device.properties.multiprocessors
    size = vector(device, ops.CHANNELS, channels, x, out) if nhwc else 1
    if nhwc:
        across = min(ops.MOST_ACROSS, channels // size)
        tiles = ceil_div(channels, across * size)
        tasks = ceil_div(images * out_height * ceil_div(out_width, ops.RUN), THREADS // across)
        blocks, arguments["across"] = tiles * min(tasks, ceil_div(most, tiles)), across
    else:
        blocks = min(most, ceil_div(images * channels * ceil_div(out_height, ops.RUN) * out_width, THREADS))
    kernel = ops.depthwise(dtype, size, nhwc)
    return _only(Launch(kernel, blocks, arguments, {"out": out.size}), x.shape, 18 * int(out.size))


def vector(device: Device, sizes: tuple[int, ...], width: int, *arrays: Any) -> int:
    """Numbers that one load can bring: the first of `sizes` that divides rows of this width, at these addresses."""
    return next(
        size
        for size in sizes
        if width % size == 0 and all(device.address(array) % (size * array.dtype.itemsize) == 0 for array in arrays)
    )


def _only(launch: Launch, sizes: tuple[int, ...] = (), operations: int = 0) -> LaunchPlan:
    """Of an operation that has one setting."""
    return LaunchPlan(("only",), sizes, operations, lambda setting: launch)
