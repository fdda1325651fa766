"""A copy of the Deep Learning Matrix Collection in miniature, as an archive and as a folder."""

import io
import tarfile

import numpy as np

from spdnn.formats import smtx
from spdnn.ops import dlmc
from spdnn.ops.problems import Shape

SHAPES = [
    Shape("a", "transformer", "attention", 8, 8, 256, 2048, 4, "random", "made up"),
    Shape("a", "resnet-50", "small", 20, 30, 7, 14, 2, "random", "made up"),
    Shape("b", "square", "n8", 8, 8, 3, None, 1, "random", "made up"),
]
LAYERS = {
    "transformer/random_pruning": [f"body_encoder_layer_{k}_ffn_conv1_fully_connected" for k in range(6)],
    "transformer/l0_regularization": [f"body_encoder_layer_{k}_self_attention_multihead_attention_q" for k in range(6)],
    "rn50/random_pruning": ["initial_conv", "final_dense", "bottleneck_1_block_group1_1_1"],
}
SPARSITIES = ("0.5", "0.9")
NAMES = [f"{kind}/{part}/{layer}.smtx" for kind, layers in LAYERS.items() for part in SPARSITIES for layer in layers]


def use(monkeypatch):
    """The counts are those of NAMES, and the table has SHAPES."""
    monkeypatch.setattr(dlmc, "COUNTS", {"transformer": 24, "rn50": 6})
    for module in ("dlmc", "problems"):
        monkeypatch.setattr(f"spdnn.ops.{module}.read_shapes", lambda: SHAPES)


def folder(path, changes=None):
    """Write the copy below `path`, with other bytes for some names (None: without it); return its folder."""
    for k, name in enumerate(NAMES):
        rows, columns = (8, 8) if name.startswith("transformer") else (20, 30)
        target = path / "dlmc" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        smtx.write(target, (rows, columns), np.arange(rows + 1), np.full(rows, k % columns))
        content = (changes or {}).get(name, b"")
        if content is None:
            target.unlink()
        elif content:
            target.write_bytes(content)
    (path / "dlmc/rn50_batchsizes.txt").write_text("initial_conv,7\n")
    (path / "dlmc/rn50/random_pruning/0.5/._initial_conv.smtx").write_text("what a Mac leaves")
    return path / "dlmc"


def archive(path, mode="w:gz", changes=None):
    """The copy as dlmc.tar.gz (or dlmc.tar) below `path`."""
    file = path / ("dlmc.tar.gz" if mode == "w:gz" else "dlmc.tar")
    with tarfile.open(file, mode) as tar:
        tar.add(folder(path / "unpacked", changes), "dlmc")
        empty = tarfile.TarInfo("README")
        tar.addfile(empty, io.BytesIO())
    return file
