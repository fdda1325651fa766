"""One's own network, called with batches in every library: verified, timed in turns; what is wrong has no number."""

import numpy as np
import pytest

import spdnn
from spdnn.bench import calls
from spdnn.bench.judge import LOWER
from spdnn.bench.libraries import base
from spdnn.bench.libraries.numpy import BlasModel
from spdnn.bench.libraries.ours import OurModel
from spdnn.bench.libraries.registry import PROGRAMS
from spdnn.core.errors import SpdnnError
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord
from tests.bench import test_calls_of_models


def network(seed=0):
    """Three layers of other widths: a clip, a bias of each output, and logits."""
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(size=shape) * (rng.random(shape) < 0.2) for shape in ((40, 60), (60, 30), (30, 7))]
    return spdnn.from_matrices(matrices, [rng.normal(size=60), 0.1, rng.normal(size=7)], clip=2.5, last="none")


def compared(libraries, batches=(1, 9)):
    case = calls.NetworkCase("mine", network(), calls.draw_rows(50, 40, 0.5), batches)
    return test_calls_of_models.compared(case, *libraries)


@pytest.mark.parametrize("library", ["scipy", "blas", "onnxruntime"])
def test_every_program_has_a_record_of_each_batch(library):
    for batch, records, refused in compared([library]):
        assert refused == {}
        ours, other = records
        assert (ours.program.name, other.program.name) == ("ours", library)
        for record in records:
            check_content(OperationRecord, record, "record")
            assert (record.operation, record.problem.batch_columns) == ("network", batch)
            assert record.problem.nonzeros == network().edges
            assert record.verification.checked == 7 * batch * record.program.notes["calls"]
            assert 0 < record.verification.worst <= 1
            assert len(record.seconds) == calls.PACE.least
            assert record.load is not None
        assert ours.comparison == other.comparison
        dense = sum(layer.inputs * layer.outputs for layer in network().layers())
        assert ours.multiply_adds == batch * network().edges
        assert other.multiply_adds == batch * (network().edges if library == "scipy" else dense)


@pytest.mark.parametrize("program", [one for one in PROGRAMS["network"].values() if not one.missing()])
def test_outputs_have_the_bits_of_numbers_that_the_oracle_allows(program):
    """Of a plain ReLU at the end, a network of one layer, and one input."""
    from spdnn.engines.oracle import forward

    for one in (network(), network().first(1), spdnn.from_matrices([np.eye(40, 3)], -0.2, last="relu")):
        ready = program(one, 1)
        for count in (1, 5):
            x = np.random.default_rng(count).random((count, 40), dtype=np.float32)
            ready.prepare_shapes(x)
            (out,) = ready.arrays(ready(ready.convert_inputs(x)))
            assert out.shape == (count, one.outputs)
            right = forward(one, x)[0]
            off = LOWER.get(ready.precision, 0) * np.abs(right).max()
            np.testing.assert_allclose(out, right, rtol=1e-4, atol=max(off, 1e-5))
        ready.close()


def test_a_library_that_is_wrong_or_fails_or_changes_has_no_number_and_ends_nothing(monkeypatch):
    class Wrong(BlasModel):
        def __call__(self, x):
            return super().__call__(x) * np.float32(1.001)

    class Failing(BlasModel):
        def __call__(self, x):
            raise RuntimeError("of its own")

    class Large(BlasModel):
        def __init__(self, network, threads):
            raise MemoryError("too large")

    class Changing(BlasModel):
        turned = 0

        def __call__(self, x):
            self.turned += 1
            return super().__call__(x) + np.float32(1e-7 * self.turned * (self.turned > 70))

    others = {"wrong": Wrong, "failing": Failing, "large": Large, "changing": Changing}
    for name, program in others.items():
        monkeypatch.setitem(PROGRAMS["network"], name, program)
    ((_, records, refused),) = compared([*others, "scipy"], [1])
    assert [record.program.name for record in records] == ["ours", "scipy"]
    assert "times what rounding of" in refused["wrong"]
    assert refused["failing"] == "of its own"
    assert refused["large"] == "too large"
    assert "is not the one that was verified" in refused["changing"]


def test_ours_that_is_wrong_is_an_error(monkeypatch):
    monkeypatch.setattr(OurModel, "__call__", lambda self, x: self.model(*x) + np.float32(0.01))
    with pytest.raises(
        SpdnnError, match="ours, batch 1: outputs are off by .* times what rounding of float32 explains"
    ):
        compared(["scipy"])


def test_dense_weights_that_do_not_fit_are_left_out(monkeypatch):
    monkeypatch.setattr(base, "available_bytes", lambda: 40_000)
    ((_, records, refused),) = compared(["scipy", "blas"], [2])
    assert [record.program.name for record in records] == ["ours", "scipy"]
    assert refused["blas"].startswith("dense weights take 17,640 bytes, 3 times over")
