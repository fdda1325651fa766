"""The .smtx files of the Deep Learning Matrix Collection: what is written is read again, and broken ones say why."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.formats import smtx
from spdnn.ops import SparseMatrix, Topology

# As the archive has them: commas in the first line, blanks at the ends.
GOOD = "3, 5, 4\n0 2 2 4 \n1 4 0 3 \n"


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.randoms(use_true_random=False))
def test_what_is_written_is_read_again(tmp_path_factory, rows, columns, random):
    path = tmp_path_factory.mktemp("smtx") / "a.smtx"
    mask = np.array([[random.random() < 0.3 for _ in range(columns)] for _ in range(rows)])
    offsets = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))
    smtx.write(path, mask.shape, offsets, np.nonzero(mask)[1])
    shape, found, where = smtx.read(path)
    assert shape == mask.shape
    assert (found == offsets).all()
    assert (where == np.nonzero(mask)[1]).all()


@pytest.mark.parametrize(
    "text", [GOOD, GOOD.replace(",", ""), GOOD.rstrip(), GOOD + "\n \n", GOOD.replace("\n", "\r\n")]
)
def test_the_archives_form_and_its_variants(tmp_path, text):
    (tmp_path / "a.smtx").write_bytes(text.encode())
    shape, offsets, columns = smtx.read(tmp_path / "a.smtx")
    assert shape == (3, 5)
    assert offsets.tolist() == [0, 2, 2, 4]
    assert columns.tolist() == [1, 4, 0, 3]
    assert SparseMatrix.from_smtx(tmp_path / "a.smtx").to_dense().astype(bool).sum() == 4


def test_a_matrix_without_nonzeros(tmp_path):
    smtx.write(tmp_path / "a.smtx", (2, 3), np.zeros(3, np.int64), np.zeros(0, np.int64))
    for text in ("2, 3, 0\n0 0 0\n\n", "2, 3, 0\n0 0 0"):
        (tmp_path / "b.smtx").write_text(text)
        for name in ("a.smtx", "b.smtx"):
            shape, offsets, columns = smtx.read(tmp_path / name)
            assert (shape, offsets.tolist(), columns.size) == ((2, 3), [0, 0, 0], 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "0 lines; a .smtx file has 3"),
        ("3, 5, 4\n", "1 lines; a .smtx file has 3"),
        (GOOD + "1 2 3\n", "4 lines; a .smtx file has 3"),
        ("3, 5\n0 2 2 4\n1 4 0 3\n", "line 1: 2 numbers; it must have rows, columns and nonzeros"),
        (GOOD.replace("0 2 2 4", "0 2 4"), "line 2: 3 offsets; 3 rows need 4"),
        (GOOD.replace("1 4 0 3", "1 4 0"), "line 3: 3 columns; line 1 says 4 nonzeros"),
        (GOOD.replace("3, 5, 4", "3, -5, 4"), "line 1: '-5  4' is no whole number"),
        (GOOD.replace("1 4 0 3", "1 4.0 0 3"), "line 3: '.0 0 3 ' is no whole number"),
        (GOOD.replace("1 4 0 3", "1 nan 0 3"), "line 3: 'nan 0 3 ' is no whole number"),
        (GOOD.replace("0 2 2 4", f"0 2 2 {10**19}"), "line 2: '10000000000000000000"),
        (GOOD.replace("3, 5, 4", f"{10**17}, 5, 4"), "line 2: 4 offsets; 100000000000000000 rows need"),
        (GOOD.replace("1 4 0 3", "4 1 0 3"), "row 0 has column 1 after column 4"),
        (GOOD.replace("1 4 0 3", "1 1 0 3"), "row 0 has column 1 twice"),
        (GOOD.replace("1 4 0 3", "1 5 0 3"), "row 0 has column 5; a matrix of 5 columns has 0 to 4"),
        (GOOD.replace("0 2 2 4", "0 3 2 4"), "offsets must ascend from 0 to the 4 nonzeros"),
        (GOOD.replace("3, 5, 4", "3, 0, 4"), "0 columns: a matrix has 1 to"),
    ],
)
def test_a_broken_file_and_positions_that_are_no_matrix_are_one_sentence(tmp_path, text, sentence):
    (tmp_path / "a.smtx").write_text(text)
    told = refuses(re.escape(sentence), SparseMatrix.from_smtx, tmp_path / "a.smtx")
    assert told.startswith(f"{tmp_path}/a.smtx")


def test_what_is_no_text_or_no_file(tmp_path):
    (tmp_path / "a.smtx").write_bytes(b"\x80\x03 3\n")
    refuses("a.smtx: it cannot be read as a .smtx file", smtx.read, tmp_path / "a.smtx")
    refuses("b.smtx: there is no such file", smtx.read, tmp_path / "b.smtx")
    refuses("it cannot be read as a .smtx file", smtx.read, tmp_path)


def test_a_topology_goes_through_a_file(tmp_path):
    topology = Topology((4, 9), [0, 2, 2, 5, 6], [0, 8, 1, 3, 5, 4])
    SparseMatrix(topology, np.ones(6, np.float32)).to_smtx(tmp_path / "a.smtx")
    assert SparseMatrix.from_smtx(tmp_path / "a.smtx", values=np.ones(6, np.float32)).topology == topology
    assert not list(tmp_path.glob(".*"))
