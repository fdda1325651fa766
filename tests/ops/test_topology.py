"""Positions of nonzeros: what is refused, the row swizzle, the transpose."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.ops import Topology

WRONG = [
    ((2, 3), [0, 2, 3], [1, 1, 2], None, "row 0 has column 1 twice; columns must ascend in each row"),
    ((2, 3), [0, 1, 3], [1, 2, 0], None, "row 1 has column 0 after column 2; columns must ascend in each row"),
    ((2, 3), [0, 2, 3], [0, 3, 2], None, "row 0 has column 3; a matrix of 3 columns has 0 to 2"),
    ((2, 3), [0, 2, 3], [0, 2, -1], None, "row 1 has column -1; a matrix of 3 columns has 0 to 2"),
    ((2, 3), [0, 2, 2], [0, 1, 2], None, "offsets must ascend from 0 to the 3 nonzeros, row by row"),
    ((2, 3), [1, 2, 3], [0, 1, 2], None, "offsets must ascend from 0 to the 3 nonzeros, row by row"),
    ((2, 3), [0, 3, 2], [0, 1], None, "offsets must ascend from 0 to the 2 nonzeros, row by row"),
    ((2, 3), [0, 2], [0, 1], None, "offsets have shape (2,); 2 rows need (3,)"),
    ((0, 3), [0], [], None, "0 rows: a matrix has 1 to 2,147,483,647"),
    ((1, 2**31), [0, 0], np.zeros(0, int), None, "2147483648 columns: a matrix has 1 to 2,147,483,647"),
    ((1, 2.5), [0, 0], np.zeros(0, int), None, "2.5 columns: a matrix has 1 to 2,147,483,647"),
    (5, [0, 0], np.zeros(0, int), None, "shape 5: a matrix has two numbers, (rows, columns)"),
    ((2, 3), [0, 2, 3], [0.0, 1.0, 2.0], None, "columns must be a list of whole numbers, not 1-dimensional float64"),
    ((2, 3), [[0, 2, 3]], [0, 1, 2], None, "offsets must be a list of whole numbers, not 2-dimensional int64"),
    ((1, 65537), [0, 1], [65536], 16, "16-bit indices reach 65,536 columns, and the matrix has 65,537"),
    ((1, 5), [0, 1], [3], 64, "index_bits 64: they must be 16 or 32"),
    ((1, 5), [0, 1], [3], np.arange(2), "index_bits array([0, 1]): they must be 16 or 32"),
    ((3, 4), [0, 2**63 - 1, -2, 3], [0, 1, 2], None, "offsets must ascend from 0 to the 3 nonzeros, row by row"),
]


@pytest.mark.parametrize(("shape", "offsets", "columns", "bits", "sentence"), WRONG)
def test_what_is_no_topology_is_refused_in_one_sentence(shape, offsets, columns, bits, sentence):
    assert refuses(None, Topology, shape, offsets, columns, bits) == sentence


def test_an_empty_list_has_no_columns():
    assert Topology((2, 3), [0, 0, 0], []).nnz == 0
    refuses(r"offsets are no array \(.*\)$", Topology, (2, 3), [[0], [1, 2]], [0, 1])


def test_rows_may_begin_at_any_column_and_be_empty():
    topology = Topology((5, 4), [0, 0, 2, 2, 3, 3], [2, 3, 0])
    assert topology.lengths.tolist() == [0, 2, 0, 1, 0]
    assert topology.row_numbers.tolist() == [1, 1, 3]
    assert topology.nnz == 3
    assert topology.sparsity == 1 - 3 / 20


def test_indices_have_16_bits_where_they_reach():
    assert Topology((1, 65536), [0, 1], [65535]).columns.dtype == np.uint16
    wide = Topology((1, 65537), [0, 1], [65536])
    assert (wide.columns.dtype, wide.columns[0]) == (np.int32, 65536)
    refuses("16-bit indices reach", Topology, (1, 65537), [0, 1], [65536], 16)
    narrow = Topology((1, 5), [0, 2], [1, 4])
    assert Topology((1, 5), [0, 2], [1, 4], 32).columns.dtype == np.int32
    assert Topology((1, 5), [0, 2], [1, 4], 32) == narrow


def test_arrays_are_copied_and_read_only():
    """Kernels follow them unchecked."""
    offsets, columns = np.array([0, 2], np.int64), np.array([1, 4], np.int32)
    topology = Topology((1, 5), offsets, columns, 32)
    columns[1] = 1 << 30
    offsets[1] = 1 << 40
    assert (topology.offsets.tolist(), topology.columns.tolist()) == ([0, 2], [1, 4])
    for made in (topology, pickle.loads(pickle.dumps(topology))):
        assert not made.offsets.flags.writeable
        assert not made.columns.flags.writeable


def test_the_swizzle_has_long_rows_first_and_equal_ones_in_order():
    assert Topology((5, 4), [0, 1, 3, 3, 4, 6], [0, 1, 2, 3, 0, 1]).order.tolist() == [1, 4, 0, 3, 2]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from((None, 32)))
def test_a_transpose_is_one_and_twice_is_the_same(rows, columns, seed, bits):
    dense = np.random.default_rng(seed).random((rows, columns)) < 0.3
    where = np.nonzero(dense)
    offsets = np.concatenate(([0], np.cumsum(dense.sum(axis=1))))
    topology = Topology((rows, columns), offsets, where[1], bits)
    turned, permutation = topology.transposed
    checked = Topology((columns, rows), turned.offsets, turned.columns, bits)
    assert checked == turned
    assert turned.columns.dtype == topology.columns.dtype
    values = np.arange(topology.nnz)
    filled = np.zeros((columns, rows), int)
    filled[turned.row_numbers, turned.columns] = values[permutation] + 1
    again = np.zeros((rows, columns), int)
    again[topology.row_numbers, topology.columns] = values + 1
    assert (again == filled.T).all()
    assert turned.transposed[0] == topology


def test_16_bit_indices_of_a_transpose_are_32_where_rows_are_many():
    tall = Topology((70000, 2), np.arange(70001), np.zeros(70000, int))
    assert tall.columns.dtype == np.uint16
    assert tall.transposed[0].columns.dtype == np.int32
    assert tall.transposed[0].columns[-1] == 69999
