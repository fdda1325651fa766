"""MobileNetV1 in both arithmetics, against the whole model in float64."""

import itertools

import model_oracle
import numpy as np
import pytest
from refusals import refuses

from spdnn.ops import SparseMatrix
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.models import mobilenet
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference
from spdnn.ops.models.mobilenet import BLOCKS, MobileNet, MobileNetConfig, random_weights, tensor_shapes

STRIDES = [stride for _, stride in BLOCKS]


def tiny(**change):
    return MobileNetConfig(**{"width": 0.1, "classes": 5, "size": 32} | change)


def images_of(count, height, width):
    """Large numbers, beside which biases are small: else random weights make logits that hardly depend on the image."""
    return 100 * np.random.default_rng(1).standard_normal((count, 3, height, width), np.float32)


def expected(model, weights, images):
    """With what the magnitudes leave of the weights that the model was made of, pruned here again."""
    weights = dict(weights)
    for k in range(model.config.dense_blocks, len(BLOCKS)):
        name = f"blocks.{k}.pointwise.weight"
        weights[name] = pruned(weights[name], model.config.sparsity)
    return np.stack([model_oracle.mobilenet(weights, STRIDES, image) for image in images])


def pruned(weight, sparsity):
    if sparsity is None:
        return weight
    keep = round((1 - sparsity) * weight.size)
    edge = np.sort(np.abs(weight), axis=None)[-keep] if keep else np.inf
    return np.where(np.abs(weight) >= edge, weight, 0)


@pytest.mark.parametrize(("count", "height", "width"), [(1, 33, 47), (3, 17, 16), (2, 1, 9), (5, 20, 20)])
def test_against_float64(count, height, width):
    config = tiny()
    model, images = MobileNet(config, 2), images_of(count, height, width)
    wanted = expected(model, random_weights(config, 2), images)
    for arithmetic, threads in itertools.product(mobilenet.ARITHMETICS, (1, 2)):
        found = model.images(images, arithmetic, threads)
        assert found.shape == (count, 5)
        assert found.dtype == np.float32
        assert difference(found, wanted) < ARITHMETIC_TOLERANCE, (arithmetic, threads)


@pytest.mark.parametrize("change", [{"width": 0.25}, {"sparsity": 0.0}, {"sparsity": 0.5, "dense_blocks": 0},
                                    {"dense_blocks": 13}, {"sparsity": 0.97}])  # fmt: skip
def test_configurations(change):
    config = tiny(**change)
    model, images = MobileNet(config, 4), images_of(1, 21, 21)
    wanted = expected(model, random_weights(config, 4), images)
    for arithmetic in mobilenet.ARITHMETICS:
        assert difference(model.images(images, arithmetic), wanted) < ARITHMETIC_TOLERANCE
    kinds = [isinstance(matrix, SparseMatrix) for matrix in model.pointwise]
    dense = model.config.dense_blocks
    assert kinds == [False] * dense + [True] * (13 - dense)


def test_weights_that_are_sparse_already():
    config = tiny(sparsity=None)
    weights = random_weights(config)
    for k in range(13):
        weights[f"blocks.{k}.pointwise.weight"] = pruned(weights[f"blocks.{k}.pointwise.weight"], 0.6)
    model, images = MobileNet(config, weights), images_of(2, 18, 18)
    assert model.pointwise[5].nnz == np.count_nonzero(weights["blocks.5.pointwise.weight"])
    for arithmetic in mobilenet.ARITHMETICS:
        assert difference(model.images(images, arithmetic), expected(model, weights, images)) < ARITHMETIC_TOLERANCE


def test_many_images_are_those_alone():
    """Neither the group that an image is in nor the threads change more than rounding."""
    model, images = MobileNet(tiny()), images_of(11, 24, 24)
    for arithmetic in mobilenet.ARITHMETICS:
        alone = np.concatenate([model.images(image[None], arithmetic, threads=1) for image in images])
        for threads in (2, 3):
            assert difference(model.images(images, arithmetic, threads), alone) < ARITHMETIC_TOLERANCE
    apart = [difference(alone[k], alone[j]) for k in range(11) for j in range(k)]
    assert min(apart) > 20 * ARITHMETIC_TOLERANCE


def test_every_pixel_counts():
    """What the tolerance could hide: a pixel of the edge that is left out changes far more."""
    model, images = MobileNet(tiny(width=0.25), 2), images_of(1, 24, 24)
    logits = model.images(images)
    for row, column in ((0, 0), (0, 23), (23, 0), (23, 23), (11, 12)):
        changed = images.copy()
        changed[0, :, row, column] = 0
        assert difference(model.images(changed), logits) > 5 * ARITHMETIC_TOLERANCE


def test_the_arithmetic_of_the_1x1_is_the_one_asked_for(monkeypatch):
    model, images = MobileNet(tiny()), images_of(1, 16, 16)
    called, inner = [], CpuBackend.spmm
    monkeypatch.setattr(CpuBackend, "spmm", lambda self, *rest: called.append(rest) or inner(self, *rest))
    model.images(images, "dense")
    assert not called
    model.images(images, "sparse")
    assert len(called) == 12
    assert set(model.seconds) == {"first convolution", "depthwise", "pointwise", "classifier"}


@pytest.mark.parametrize(
    ("width", "first", "nonzeros"),
    [
        (1.8, 6440, [2668, 5382, 10765, 21530, 42688, 84640, 84640, 84640, 84640, 84640, 169280, 338560]),
        (1.3, 3320, [1394, 2822, 5645, 11290, 22310, 44090, 44090, 44090, 44090, 44090, 88179, 176358]),
    ],
)
def test_the_papers_nonzeros(width, first, nonzeros):
    """Of its code, at 90 %: channels are rounded as there, the first 1 x 1 is dense."""
    channels = MobileNetConfig(width=width).channels
    sizes = [before * after for before, after in zip(channels, channels[1:], strict=False)]
    assert sizes[0] == first
    assert [round(0.1 * size) for size in sizes[1:]] == pytest.approx(nonzeros, abs=1)


def test_channels_at_width_1():
    assert MobileNetConfig().channels == (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    parameters = sum(int(np.prod(shape)) for shape in tensor_shapes(MobileNetConfig()).values())
    assert 4.2e6 < parameters < 4.25e6  # Howard et al., table 8: 4.2 million


def test_costs():
    dense = MobileNet(tiny(size=224, sparsity=0.9))
    c = dense.config.channels
    assert dense.weight_bytes("dense") == 4 * sum(int(np.prod(s)) for s in tensor_shapes(dense.config).values())
    saved = sum(4 * matrix.shape[0] * matrix.shape[1] - matrix.nbytes for matrix in dense.pointwise[1:])
    assert dense.weight_bytes("dense") - dense.weight_bytes("sparse") == saved
    sides = [112, 56, 56, 28, 28, 14, 14, 14, 14, 14, 14, 7, 7]
    products = sum((9 * c[k] + c[k] * c[k + 1]) * side**2 for k, side in enumerate(sides))
    assert dense.flops("dense") == 2 * (27 * c[0] * 112**2 + products + c[-1] * 5)
    less = sum((c[k] * c[k + 1] - dense.pointwise[k].nnz) * side**2 for k, side in enumerate(sides) if k)
    assert dense.flops("dense") - dense.flops("sparse") == 2 * less


def test_operations_at_width_1():
    """Howard et al., table 8: 569 million multiplications with additions."""
    config = MobileNetConfig(dense_blocks=13)
    model = MobileNet(config, {name: np.ones(shape, np.float32) for name, shape in tensor_shapes(config).items()})
    assert model.flops("dense") / 2 == pytest.approx(569e6, rel=0.001)


def test_activations_stay_sane():
    model = MobileNet(MobileNetConfig(width=0.5, size=64, classes=10))
    logits = model.images(images_of(2, 64, 64) / np.float32(100))
    assert 0.02 < logits.std() < 5


def test_save_and_read(tmp_path):
    config = tiny()
    model, images = MobileNet(config, 5), images_of(1, 20, 20)
    model.save(tmp_path / "weights.npz")
    assert np.array_equal(MobileNet(config, tmp_path / "weights.npz").images(images), model.images(images))
    assert not np.array_equal(MobileNet(config, 6).images(images), model.images(images))


def test_nan_is_told():
    model, images = MobileNet(tiny()), images_of(1, 20, 20)
    images[0, 1, 3, 3] = np.nan
    refuses("NaN", model.images, images)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 0.05}, "width 0.05: it must be a number from 0.1 to below 8"),
        ({"width": "1"}, "width '1'"),
        ({"size": 7}, "size 7: it must be a whole number from 8 to 4,096"),
        ({"classes": 0}, "classes 0"),
        ({"sparsity": 1.0}, "sparsity 1.0: it must be a number from 0 to below 1"),
        ({"dense_blocks": 14}, "dense_blocks 14: it must be a whole number from 0 to 13"),
    ],
)
def test_configurations_refused(change, said):
    refuses(said, tiny, **change)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.ones((1, 3, 8, 8)), "images are float64 of shape .1, 3, 8, 8.; they must be a float32 array"),
        (np.ones((1, 4, 8, 8), np.float32), "of shape .1, 4, 8, 8."),
        (np.ones((3, 8, 8), np.float32), "of shape .3, 8, 8."),
        (np.ones((0, 3, 8, 8), np.float32), "of shape .0, 3, 8, 8."),
        ([1], "images are list"),
    ],
)
def test_images_refused(images, said):
    refuses(said, MobileNet(tiny()).images, images)
