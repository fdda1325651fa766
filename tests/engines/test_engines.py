"""Every fast engine against the oracle, on awkward shapes, at every instruction-set level."""

import os
from unittest import mock

import numpy as np
import pytest
from engine_cases import SHAPES, around_sixteen_bits, assert_equal, assert_same, opened, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from ladders import LEVELS, covering, each_level, rung
from refusals import refuses

from spdnn.api import infer
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.formats.radixnet import RadixNet

pytestmark = pytest.mark.parametrize("name", ["cpu", "spgemm"])


@pytest.mark.parametrize("level", each_level)
@pytest.mark.parametrize(("shape", "kind"), covering(SHAPES, ["bits", "dense", "csr"]))
def test_awkward_shapes(name, random_network, monkeypatch, shape, kind, level):
    monkeypatch.setenv("SPDNN_ISA", level)
    count, widths, options = SHAPES[shape]
    got, expected = assert_same(name, random_network(widths, **options), rows(count, widths[0], kind=kind), threads=2)
    assert got.notes["instruction_set"] == level
    assert abs(got.survivors - expected.survivors).max() <= 1  # a value that ties with zero may fall either way


@pytest.mark.parametrize("degree", [0, 1, 31, 32, 33, 70])
@pytest.mark.parametrize(("single", "reductions"), covering([True, False], ["none", "all"]))
def test_any_number_of_nonzeros(name, degree, single, reductions):
    rng = np.random.default_rng(degree)
    matrix = np.zeros((80, 40), np.float32)
    for column in range(40):
        matrix[rng.permutation(80)[:degree], column] = 0.25 if single else rng.normal(size=degree)
    assert_same(name, from_matrices([matrix], -0.01, last="relu"), rows(50, 80), reductions=reductions)


@pytest.mark.parametrize("width", [65_535, 65_536, 65_537])
def test_widths_around_sixteen_bits(name, width):
    first, last, _ = around_sixteen_bits(width)
    network = from_matrices([first, last], 0.0, last="relu")
    assert network.layer(1).indices.dtype == (np.uint16 if width <= 65_536 else np.uint32)
    got, _ = assert_same(name, network, Inputs.from_array(np.random.default_rng(1).random((9, 3)).astype(np.float32)))
    assert got.alive.size == 9


def test_dead_rows_leave_only_while_no_later_bias_is_positive(name, random_network):
    widths = [30, 30, 30, 30]
    network = from_matrices([network_layer.matrix() for network_layer in random_network(widths).layers()],
                            [-500.0, 0.5, -0.1], last="relu")  # fmt: skip
    got, expected = assert_same(name, network, rows(100, 30))
    assert expected.survivors[0] == 0 < expected.survivors[1]  # all die, and the positive bias revives them
    np.testing.assert_array_equal(got.survivors, expected.survivors)
    session = opened(name, network, rows(10, 30), ("dead",))
    session.run()
    assert session.findings["dead"]["rows_may_leave_before_layer"] == 3


def test_a_bias_without_activation_keeps_dead_rows(name, random_network):
    network = from_matrices([np.eye(4), np.eye(4)], [-9.0, -1.0], last="none")
    got, _ = assert_same(name, network, rows(20, 4))
    assert got.alive.size == 20
    assert (got.all_values() == -1).all()


@pytest.mark.parametrize("reductions", ["none", "dead,inputs", "all", *map(rung, ["dead", "inputs"])])
def test_threads_batches_and_streaming_change_nothing(name, reductions):
    network = RadixNet(1024, 40)
    inputs = rows(300, 1024, kind="bits", density=np.linspace(0, 0.35, 300)[:, None])
    # Merging neurons changes the order of sums; the other reductions change no bit.
    alike = "none" if reductions != "all" else "neurons"
    one = infer(network, inputs, name, threads=1, reductions=alike)
    assert 0 < one.alive.size < 300
    for threads in (1, 2, 5):
        assert_equal(infer(network, inputs, name, threads=threads, reductions=reductions), one)
    for resident_layers in (True, False):
        session = opened(name, network, inputs, parse_reductions(reductions), threads=2)
        session.batch = 64
        session.layers = session.layers if resident_layers else None
        batched = session.run()
        assert_equal(batched, one)
        assert batched.notes["batches"] == 5


def test_wrong_width_is_one_sentence(name):
    refuses(r"is \(3, 64\); the network takes \(inputs, 1024\)", infer, RadixNet(1024, 2), rows(3, 64), name)
    refuses("reduction 'dad' is not offered", infer, RadixNet(1024, 2), rows(3, 1024), name, reductions="dad")


def test_more_inputs_than_stored_repeat(name):
    network, inputs = RadixNet(1024, 20), rows(50, 1024, kind="bits", density=0.15)
    once, twice = infer(network, inputs, name), infer(network, inputs.first(120), name)
    expected = [n for n in (*once.alive, *(once.alive + 50), *(once.alive + 100)) if n < 120]
    np.testing.assert_array_equal(twice.alive, expected)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_network_equals_the_oracle(name, data):
    """After n layers values are multiples of 2^-(2n + 1), and small enough that no sum in float32 is rounded.

    A sum has at most 40 products with weights up to 3/4, and a bias up to 1/4. With a clip of 32 it is below 2^10, and
    six layers take 23 bits; without, from inputs up to 2, three layers stay below 2^16 and take 23 bits, too.
    """
    clip = data.draw(st.sampled_from([None, 1.0, 32.0]), label="clip")
    most = 4 if clip is None else 7
    widths = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=most), label="widths")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    matrices = [
        np.where(rng.random((a, b)) < 0.4, rng.integers(-3, 4, (a, b)) / 4, 0)
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]
    biases = [rng.integers(-2, 3, b) / 8 for b in widths[1:]]
    network = from_matrices(matrices, biases, clip, last=data.draw(st.sampled_from(["relu", "none"])))
    values = rng.integers(-2, 3, (data.draw(st.integers(1, 70)), widths[0])).astype(np.float32)
    threads = data.draw(st.integers(1, 3), label="threads")
    expected = reference.infer(network, Inputs.from_array(values), values=True)
    for level in LEVELS:
        with mock.patch.dict(os.environ, SPDNN_ISA=level):
            got = infer(network, Inputs.from_array(values), name, values=True, threads=threads)
        assert got.notes["instruction_set"] == level
        assert_equal(got, expected, to_the_bit=False)


def test_bits_past_the_width_are_no_inputs(name):
    inputs = Inputs(bits := np.array([[0b10101000], [0b01000000], [0b00000000]], np.uint8), 5)
    bits |= 0b111  # which the constructor would refuse
    network = from_matrices([np.arange(1, 51).reshape(5, 10), np.eye(10)], 0.0, last="none")
    found = infer(network, inputs, name, "none", values=True)
    rows = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]) @ np.arange(1, 51).reshape(5, 10)
    np.testing.assert_array_equal(found.all_values(), rows)
