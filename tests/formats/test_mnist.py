"""The official inputs: the resize against its formula taken literally, the digests, and files that are not MNIST."""

import gzip
import struct

import numpy as np
import pytest
from engine_cases import official_inputs
from ladders import rung
from refusals import refuses

from spdnn.core import challenge
from spdnn.core.errors import SpdnnError
from spdnn.formats import mnist
from spdnn.kernels import dispatch


def literal(images: np.ndarray, side: int) -> np.ndarray:
    """The MATLAB lines as they stand, with 0-based numbers."""
    s, n = side, len(images)
    wide = np.concatenate(list(images.astype(np.float64)), axis=1)
    spectrum = np.fft.fft2(wide)
    padded = np.zeros((s, s * n), dtype=complex)
    rows = np.r_[0:15, s - 13 : s]
    columns = np.r_[0 : 14 * n + 1, s * n - 14 * n + 1 : s * n]
    padded[np.ix_(rows, columns)] = spectrum
    modulus = np.abs(np.fft.ifft2(padded))
    bits = modulus > 0.5 * modulus.max()
    return np.packbits(bits.reshape(s * s, n, order="F").T, axis=1)


def idx(images: np.ndarray, magic: int = 0x803) -> bytes:
    return struct.pack(">IIII", magic, *images.shape) + images.tobytes()


def strokes(count: int, seed: int = 0) -> np.ndarray:
    """Images of noise within a frame of zeros, some of them all zero."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    images[:, :4], images[:, :, :5] = 0, 0
    images[1::3] = 0
    return images


@pytest.mark.parametrize("side", [32, 64, 128, 256])
def test_resize_is_the_literal_formula_at_every_level(side, monkeypatch):
    for seed, count in enumerate((1, 2, 7)):
        images = strokes(count, seed)
        expected = literal(images, side)
        for level in dispatch.levels():
            monkeypatch.setenv("SPDNN_ISA", level.name)
            np.testing.assert_array_equal(mnist.resize_to_bits(images, side), expected)


@pytest.mark.parametrize("side", [32, 64, 128])
def test_nyquist_bins_that_are_not_zero(side):
    """The highest frequency in both directions, where real part and modulus differ most."""
    board = (np.indices((28, 28)).sum(axis=0) % 2 * 255).astype(np.uint8)
    images = np.stack([board, strokes(1)[0], np.roll(board, 1, axis=0), np.repeat(board[:1], 28, axis=0)])
    np.testing.assert_array_equal(mnist.resize_to_bits(images, side), literal(images, side))


def test_the_largest_modulus_is_found_whatever_the_blocks(monkeypatch):
    images = strokes(9)
    images[7, 10:14, 10:14] = 255
    monkeypatch.setattr(mnist, "COLUMNS", 5)
    np.testing.assert_array_equal(mnist.resize_to_bits(images, 256), literal(images, 256))


@pytest.mark.needs("mnist")
@pytest.mark.xdist_group("mnist")
@pytest.mark.parametrize("neurons", [rung(1024, default=True), rung(4096)])
def test_official_digests(neurons, mnist_file):
    inputs = official_inputs(neurons, mnist_file)
    assert inputs.sha256 == challenge.INPUT_SHA256[neurons]
    assert (inputs.count, inputs.neurons, inputs.kind) == (60_000, neurons, "bits")
    assert inputs.description["source"] == "mnist"
    if neurons == 1024:  # the largest modulus that is known is the one that a pass of its own finds
        np.testing.assert_array_equal(mnist.resize_to_bits(mnist.read_idx(mnist_file), 32), inputs.data)


@pytest.mark.needs("mnist")
def test_locate_takes_the_file_that_is_named_and_else_the_mirror(mnist_file, tmp_path, monkeypatch):
    assert mnist.locate_mnist(mnist_file) == mnist_file
    mirror = tmp_path / "mirror"
    (mirror / "mnist").mkdir(parents=True)
    (mirror / "mnist" / mnist_file.name).symlink_to(mnist_file)
    monkeypatch.setenv("SPDNN_MIRROR", str(mirror))
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "cache"))
    found = mnist.locate_mnist()
    assert found == tmp_path / "cache" / "mnist" / "train-images-idx3-ubyte.gz"
    monkeypatch.delenv("SPDNN_MIRROR")
    assert mnist.locate_mnist() == found
    assert len(mnist.read_idx(found)) == 60_000


def test_bits_that_are_not_official_are_refused(tmp_path, monkeypatch):
    (tmp_path / "images").write_bytes(idx(strokes(3)))
    monkeypatch.setattr(mnist, "read_idx", lambda path: strokes(3))
    with pytest.raises(SpdnnError, match="not the official"):
        mnist.mnist_inputs(1024, tmp_path / "images")


def test_other_widths_are_refused():
    for neurons in (0, -4, 1000, 256, 262_144):
        refuses("1024, 4096, 16384, 65536", mnist.mnist_inputs, neurons, "unused")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_gzip_are_read(pack, tmp_path):
    images = strokes(4)
    path = tmp_path / "images"
    path.write_bytes(pack(idx(images)))
    np.testing.assert_array_equal(mnist.read_idx(path, None), images)
    for read in (mnist.read_idx, mnist.locate_mnist):
        refuses("SHA-256", read, path)


GOOD = idx(strokes(2))
BROKEN = {
    "labels": (idx(strokes(2), magic=0x801), "not an idx file"),
    "empty": (b"", "not an idx file"),
    "text": (b"1\t2\t1\n" * 10, "not an idx file"),
    "header only": (GOOD[:10], "not an idx file"),
    "short": (GOOD[:-1], "header promises"),
    "long": (GOOD + b"\0", "header promises"),
    "other size": (idx(np.zeros((2, 28, 27), np.uint8)), "28 x 27"),
    "wider": (idx(np.zeros((2, 28, 29), np.uint8)), "28 x 29"),
    "no images": (idx(np.zeros((0, 28, 28), np.uint8)), "0 images"),
    "short gzip": (gzip.compress(GOOD)[:-20], "cannot be read"),
    "bad gzip": (b"\x1f\x8b" + b"\x00" * 40, "cannot be read"),
    "damaged gzip": (gzip.compress(GOOD, 0)[:200] + b"\xff" * 100 + gzip.compress(GOOD, 0)[300:], "cannot be read"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_files_that_are_not_images_are_named(kind, tmp_path):
    content, says = BROKEN[kind]
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    assert str(path) in refuses(says, mnist.read_idx, path, None)


def test_no_such_file_and_a_folder(tmp_path):
    refuses("no such", mnist.read_idx, tmp_path / "absent")
    refuses("cannot be read", mnist.read_idx, tmp_path)
