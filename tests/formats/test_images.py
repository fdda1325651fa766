"""Inputs and categories as text: bits where they are bits, counts, and every fault with its file and line."""

import gzip
import os
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.core.categories import read_categories, write_categories
from spdnn.core.features import Inputs
from spdnn.formats.digits import digits_inputs
from spdnn.formats.images import open_inputs, write_images


def images(folder, content, name="sparse-images-9.tsv"):
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_what_is_written_is_read(tmp_path_factory, data):
    count, neurons = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 20)))
    cells = st.tuples(st.integers(1, count), st.integers(1, neurons))
    given_cells = data.draw(st.lists(cells, min_size=1, unique=True))
    value = st.just(1.0) if data.draw(st.booleans()) else st.sampled_from([0.0, 1.0, 0.5, -2.0])
    values = data.draw(st.lists(value, min_size=len(given_cells), max_size=len(given_cells)))
    wanted = np.zeros((count, neurons), np.float32)
    for (i, j), v in zip(given_cells, values, strict=True):
        wanted[i - 1, j - 1] = v
    text = "".join(f"{i}\t{j}\t{v}\n" for (i, j), v in zip(given_cells, values, strict=True))
    path = images(tmp_path_factory.mktemp("images"), text.encode(), "a.tsv")
    read = open_inputs(path, neurons, count, block=data.draw(st.integers(1, 60)))
    assert np.array_equal(read.dense(np.arange(count)), wanted)
    assert read.kind == ("bits" if np.isin(wanted, (0, 1)).all() else "csr")
    assert read.count == count
    assert open_inputs(path, neurons).count == max(i for i, _ in given_cells)


def test_widths_and_counts(tmp_path):
    text = b"2\t1\t1\n1\t9\t1\n"
    read = open_inputs(images(tmp_path, text))
    assert (read.neurons, read.count, read.kind) == (9, 2, "bits")
    assert read.description["path"] == "sparse-images-9.tsv"
    official = images(tmp_path, text, "sparse-images-1024.tsv.gz")
    assert (open_inputs(official).neurons, open_inputs(official).count) == (1024, 60_000)
    assert open_inputs(official, count=5).count == 5
    images(tmp_path, text + b"60001\t1\t1\n", "sparse-images-1024.tsv.gz")
    assert open_inputs(official).count == 60_001
    refuses("does not say how many neurons", open_inputs, images(tmp_path, text, "a.tsv"))
    refuses("at least one of each", open_inputs, official, count=0)
    refuses(r"a\.tsv:1: image '2' is not one of 1 to 1$", open_inputs, tmp_path / "a.tsv", 9, count=1)
    refuses(r"sparse-images-1024\.tsv\.gz: its name says 1024 neurons, not 4096$", open_inputs, official, 4096)
    assert open_inputs(official, 1024).neurons == 1024
    wide = images(tmp_path, text, "sparse-images-999999999.tsv")
    refuses(r"a size of 999999999; at most 134217728 neurons are possible here$", open_inputs, wide)
    refuses("x: File name too long$", open_inputs, tmp_path / ("x" * 300), 9)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x\t1\t1", "image 'x' is not one of 1 to 10000000"),
        ("1\t10\t1", "pixel '10' is not one of 1 to 9"),
        ("0\t1\t1", "image '0' is not one of"),
        ("99999999\t1\t1", "image '99999999' is not one of"),
        ("1\t1", r"'1\\t1' has 2 of 3 fields; a line is image, pixel, value, parted by tabs"),
        ("1\t2\tinf", "value 'inf' is not a finite number"),
        ("1\t1\t1", "pixel 1 of image 1 is given twice"),
        ("2\t3\t1", "pixel 3 of image 2 is given twice"),
    ],
)
def test_wrong_line_is_named(tmp_path, line, said):
    for name, block in (("sparse-images-9.tsv", 1), ("sparse-images-9.tsv.gz", 20), ("sparse-images-9.tsv", 1 << 20)):
        path = images(tmp_path, f"1\t1\t1\n2\t3\t0.5\n1\t7\t1\n{line}\n1\t8\t1\n".encode(), name)
        refuses(rf"{re.escape(str(path))}:4: {said}", open_inputs, path, block=block)


def test_empty_or_cut_short(tmp_path):
    for content in (b"", b"\n"):
        refuses(r"sparse-images-9\.tsv: the file is empty", open_inputs, images(tmp_path, content))
    path = images(tmp_path, b"1\t1\t1\n" * 3, "sparse-images-9.tsv.gz")
    path.write_bytes(path.read_bytes()[:-5])
    refuses("the gzip data is cut short", open_inputs, path)
    refuses("there is no such file", open_inputs, tmp_path / "sparse-images-4.tsv")


def test_categories(tmp_path):
    path = tmp_path / "categories.txt"
    write_categories(path, np.array([2, 7, 60_000]))
    assert path.read_bytes() == b"2\n7\n60000\n"
    assert read_categories(path).tolist() == [2, 7, 60_000]
    path.write_bytes(b"7\r\n\n 2\n3")
    read = read_categories(path)
    assert (read.dtype, read.tolist()) == (np.int64, [2, 3, 7])
    write_categories(path, np.array([], np.int64))
    assert read_categories(path).tolist() == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x", "'x' is not a category"),
        ("0", "'0' is not a category"),
        ("-4", "'-4' is not a category"),
        ("1.0", "'1.0' is not a category"),
        ("1 2", "'1 2' is not a category"),
        ("9" * 19, "is not a category; one is a whole number from 1"),
        ("5", "category 5 is given twice, first in line 1"),
    ],
)
def test_wrong_category_is_named(tmp_path, line, said):
    path = tmp_path / "categories.txt"
    path.write_text(f"5\n\n3\n{line}\n")
    refuses(rf"categories\.txt:4: .*{said}", read_categories, path)


@pytest.mark.parametrize("numbers", [[0, 1], [2, 2], [3, 1], [[1]]])
def test_categories_that_do_not_ascend(tmp_path, numbers):
    refuses("must ascend, from 1", write_categories, tmp_path / "a.txt", np.array(numbers))
    assert os.listdir(tmp_path) == []


def test_few_pixels_are_not_many_images(tmp_path):
    """A file of one line named image 1,000,000, which took 26 s and 640 MB."""
    refuses("image 1000000 in a file of 1 pixels so far", open_inputs, images(tmp_path, b"1000000\t1\t.5"))
    wide = images(tmp_path, b"60000\t1\t1\n", "sparse-images-4194304.tsv")
    refuses("60000 images of 4194304 neurons take 31,457,280,000 bytes for so few pixels", open_inputs, wide)
    read = open_inputs(images(tmp_path, b"1000000\t1\t.5"), count=1_000_000)
    assert (read.count, read.nonzeros) == (1_000_000, 1)


def test_a_wide_binary_matrix_of_few_ones_stays_sparse():
    made = Inputs.from_array(sp.coo_array(([1.0, 1.0], ([0, 4_000_000], [4_000_000, 0])), shape=(4_000_001, 4_000_001)))
    assert (made.kind, made.nonzeros) == ("csr", 2)


@pytest.mark.parametrize("rows", [1, 8, 1 << 20])
def test_images_without_a_one_stay_between_others(tmp_path, monkeypatch, rows):
    monkeypatch.setattr("spdnn.formats.images.UNPACKED_BITS", rows)
    text = b"1\t1\t1\n3\t2\t1\n3\t4\t0.5\n5\t3\t2\n7\t4\t1\n"
    expected = np.zeros((8, 4), np.float32)
    expected[[0, 2, 2, 4, 6], [0, 1, 3, 2, 3]] = [1, 1, 0.5, 2, 1]
    np.testing.assert_array_equal(open_inputs(images(tmp_path, text, "a.tsv"), 4, 8).dense(np.arange(8)), expected)


@pytest.mark.parametrize("name", ["sparse-images-1024.tsv", "sparse-images-1024.tsv.gz", "x.tsv"])
def test_what_is_written_is_read_as_it_was(tmp_path, name):
    inputs = digits_inputs(1024, 300)
    write_images(tmp_path / name, inputs)
    read = open_inputs(tmp_path / name, 1024, count=300)
    assert (read.kind, read.sha256) == ("bits", inputs.sha256)
    text = (gzip.decompress if name.endswith(".gz") else bytes)((tmp_path / name).read_bytes()).decode()
    entries = [tuple(map(int, line.split("\t"))) for line in text.splitlines()]
    assert entries == sorted(entries, key=lambda entry: (entry[1], entry[0]))
    assert {value for *_, value in entries} == {1}
    assert text.endswith("\t1\n")


def test_inputs_that_repeat_are_written_as_often(tmp_path):
    inputs = digits_inputs(256, 50).first(130)
    assert inputs.data.shape[0] == 50
    write_images(tmp_path / "x.tsv", inputs)
    read = open_inputs(tmp_path / "x.tsv", 256, count=130)
    assert (read.dense(np.arange(130)) == inputs.dense(np.arange(130))).all()


def test_what_has_no_official_text(tmp_path):
    dense = Inputs.from_array(np.full((2, 16), 0.5, np.float32))
    refuses("official text has inputs of zeros and ones", write_images, tmp_path / "x.tsv", dense)
    assert not list(tmp_path.iterdir())
