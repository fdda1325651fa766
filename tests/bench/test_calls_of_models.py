"""ONNX models that are no chains, in every library: any shapes and inputs, compared with ONNX Runtime."""

import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from refusals import refuses

from spdnn.bench import calls
from spdnn.bench.calls import OnnxCase
from spdnn.bench.contest import ComparisonSettings
from spdnn.bench.libraries import mnn as mnn_library
from spdnn.bench.libraries.onnx import OnnxRuntime
from spdnn.cli.bench_model import _case, _print
from spdnn.core.request import READING
from spdnn.core.table import PERCENT
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord

pytestmark = pytest.mark.usefixtures("untimed")


def saved(path, first="batch", tokens="tokens"):
    """Embedded tokens and features (first, tokens, 8), added, through a pruned product; and the largest place."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 300)) * (rng.random((8, 300)) < 0.1)
    arrays = {"table": rng.standard_normal((50, 8)), "weight": weight}
    made = helper.make_node
    nodes = [made("Gather", ["table", "ids"], ["e"]), made("Add", ["e", "x"], ["s"]),
             made("MatMul", ["s", "weight"], ["y"]), made("ArgMax", ["y"], ["place"], axis=-1, keepdims=0)]  # fmt: skip
    ends = {"ids": (TensorProto.INT64, [first, tokens]), "x": (TensorProto.FLOAT, [first, tokens, 8])}
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info(name, *of) for name, of in ends.items()],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "place")],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def compared(case, *libraries):
    comparison = ComparisonSettings(2, libraries, 0.0, "spdnn bench", "0123456789abcdef")
    groups = calls.compare_calls(case, comparison)
    return [(records[0].problem.batch_columns, records, refused) for records, refused in groups]


def rounded(y):
    """float32 with the digits of bfloat16."""
    return (y.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)


@pytest.fixture
def openvino(monkeypatch):
    """A module that takes what OpenVINO's does, and computes with ONNX Runtime; by default it rounds to bfloat16."""
    import onnxruntime

    class Compiled:
        outputs = (0, 1)

        def __init__(self, model, device, options):
            self.model, self.device, self.options = model, device, options

        def get_property(self, name):
            if name == "INFERENCE_PRECISION_HINT":
                return SimpleNamespace(to_string=lambda: self.options.get(name, "bf16"))
            return self.options[name]

        def __call__(self, x):
            assert [list(one.shape) for one in x] == list(self.model.shapes.values())
            session = onnxruntime.InferenceSession(self.model.source, providers=["CPUExecutionProvider"])
            names = [argument.name for argument in session.get_inputs()]
            y, place = session.run(None, dict(zip(names, x, strict=True)))
            return {0: y if "INFERENCE_PRECISION_HINT" in self.options else rounded(y), 1: place}

    class Model:
        def __init__(self, source):
            self.source = source

        def reshape(self, shapes):
            self.shapes = shapes

    core = SimpleNamespace(read_model=Model, compile_model=Compiled)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: core, __version__="1"))
    monkeypatch.setitem(sys.modules, "openvino_telemetry", None)
    return Compiled


@pytest.fixture
def mnn(monkeypatch):
    """A module that takes what MNN's does, and computes with ONNX Runtime into the memory of its call before."""
    import onnxruntime

    class Module:
        def __init__(self, path, names, outputs, precision_mode, **settings):
            assert (precision_mode, settings) == ("high", {"backend": "cpu", "thread_num": 2})
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            assert outputs == [output.name for output in self.session.get_outputs()]
            self.names, self.outs = names, {}

        def forward(self, x):
            feed = {name: one.astype(np.int64 if one.dtype == np.int32 else one.dtype)
                    for name, one in zip(self.names, x, strict=True)}  # fmt: skip
            for number, out in enumerate(self.session.run(None, feed)):
                self.outs.setdefault((number, out.shape), np.empty_like(out))[...] = out
            return [SimpleNamespace(read=lambda out=out: out) for out in self.outs.values()]

    def const(values, shape, layout, kind):
        assert (list(values.shape), layout, values.dtype) == (shape, "nchw", kind)
        return values

    expr = SimpleNamespace(
        Backend=SimpleNamespace(CPU="cpu"), PrecisionMode=SimpleNamespace(High="high"), const=const,
        data_format=SimpleNamespace(NCHW="nchw"), dtype=SimpleNamespace(float=np.float32, int=np.int32),
    )  # fmt: skip
    nn = SimpleNamespace(load_module_from_file=Module)
    for name, module in {
        "MNN": SimpleNamespace(expr=expr, nn=nn, version=lambda: "9"),
        "MNN.expr": expr,
        "MNN.nn": nn,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_mnn_runs_what_its_converter_makes(tmp_path, mnn, monkeypatch):
    case = OnnxCase("mine", saved(tmp_path / "a.onnx"), 2, [3])
    monkeypatch.setattr(mnn_library, "CONVERT", "print('Start'); raise SystemExit('These Op Not Support: x')")
    ((_, _, refused),) = compared(case, "mnn")
    assert refused["mnn"] == "its converter makes no model of this one; it says: These Op Not Support: x"
    monkeypatch.setattr(
        mnn_library, "CONVERT", "import shutil, sys; shutil.copy(sys.argv[4], sys.argv[6]); print('it prints')"
    )
    ((_, (_, record), refused),) = compared(case, "mnn")
    check_content(OperationRecord, record, "record")
    assert (refused, record.program.version, record.program.notes["precision"]) == ({}, "MNN 9", "float32")
    assert record.matrix_bytes == (tmp_path / "a.onnx").stat().st_size


@pytest.mark.parametrize("given", [False, True])
def test_every_program_has_a_verified_record_of_each_batch(given, tmp_path, openvino):
    path, file, rng = saved(tmp_path / "a.onnx"), tmp_path / "x.npz", np.random.default_rng(1)
    np.savez(file, x=rng.standard_normal((5, 3, 8)), ids=rng.integers(0, 50, (5, 3)))
    case = OnnxCase("mine", path, 2, [1, 7], str(file) if given else None)
    for batch, records, refused in compared(case, "onnxruntime", "openvino-f32", "scipy", "torch"):
        assert refused == dict.fromkeys(["scipy", "torch"], calls.LAYERS)
        assert [record.program.name for record in records] == ["ours", "onnxruntime", "openvino-f32"]
        for record in records:
            assert record.program.notes["precision"] == "float32"
            assert record.verification.error < calls.OUTPUT_TOLERANCE
            check_content(OperationRecord, record, "record")
            assert (record.operation, record.problem.batch_columns) == ("network", batch)
            assert record.problem.layer == "4 nodes"
            tokens = 3 if given else 64
            assert record.verification.checked == batch * tokens * 301 * record.program.notes["calls"]
            assert record.operand_bytes == batch * tokens * (8 + 4 * 8 + 4 * 300 + 8)
            assert "by ONNX Runtime without optimisations" in record.verification.rule
        assert "1 of 1 pruned product by spdnn" in records[0].program.notes["layout"]
        assert records[2].program.notes["layout"] == "dense, CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE = 0.75"


def test_a_program_of_lower_precision_is_shown_as_that_with_its_error(tmp_path, openvino, capsys):
    case = OnnxCase("mine", saved(tmp_path / "a.onnx"), 1, [2])
    ((_, records, refused),) = compared(case, "openvino", "openvino-f32")
    assert refused == {}
    assert [record.program.name for record in records] == ["ours", "openvino", "openvino-f32"]
    _, lower, same = records
    check_content(OperationRecord, lower, "record")
    assert (lower.program.notes["precision"], same.program.notes["precision"]) == ("bfloat16", "float32")
    assert same.verification.error < calls.OUTPUT_TOLERANCE < lower.verification.error < 2**-8
    assert lower.verification.worst == pytest.approx(lower.verification.error / 0.02)
    assert lower.verification.rule == (
        "bfloat16: every value within 2 % of the largest of its output, compared with ONNX Runtime without "
        "optimisations; whole numbers are not compared"
    )
    assert lower.verification.checked == 2 * 64 * 300 * lower.program.notes["calls"]
    _print(records)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("openvino "))
    assert f"bfloat16         {PERCENT.write(lower.verification.error)}" in line


@pytest.mark.parametrize(("precision", "allowed"), [("float32", 0), ("float16", 0.002), ("bfloat16", 0.015)])
def test_each_precision_has_its_tolerance(precision, allowed, tmp_path, monkeypatch):
    """Whole numbers follow from rounded ones, so they are compared of float32 alone."""

    def program(off):
        def prepare(self, *x):
            self.precision = precision

        def arrays(self, out):
            y, place = out
            return [y + np.float32(off) * np.abs(y).max() * (y == y.max()), place[::-1] if allowed else place]

        return type("Rounding", (OnnxRuntime,), {"prepare_shapes": prepare, "arrays": arrays})

    programs = {f"off by {off}": program(off) for off in (0, 0.002, 0.015, 0.025)}
    for name, each in programs.items():
        monkeypatch.setitem(calls.PROGRAMS["network"], name, each)
    case = OnnxCase("mine", saved(tmp_path / "a.onnx"), 1, [2])
    ((_, records, refused),) = compared(case, *programs)
    assert set(programs) - set(refused) == {name for name in programs if float(name.split()[-1]) <= allowed}
    assert [record.program.notes["precision"] for record in records[1:]] == [precision] * len(records[1:])
    assert all("times what rounding of" in reason for reason in refused.values())


SPOILT = {
    "a value": lambda y, place: [y + np.float32(0.01) * (y == y.max()), place],
    "a whole number, which has no tolerance": lambda y, place: [y, place + (place == place.max())],
    "NaN": lambda y, place: [y * np.float32(np.nan), place],
    "a dimension": lambda y, place: [y[..., None], place],
    "an output": lambda y, place: [y],
}


def test_a_library_with_one_wrong_output_has_no_number(tmp_path, monkeypatch):
    for name, spoilt in SPOILT.items():
        wrong = type("Wrong", (OnnxRuntime,), {"arrays": lambda self, out, spoilt=spoilt: spoilt(*out)})
        monkeypatch.setitem(calls.PROGRAMS["network"], name, wrong)
    case = OnnxCase("mine", saved(tmp_path / "a.onnx"), 1, [2])
    ((_, records, refused),) = compared(case, *SPOILT, "onnxruntime")
    assert [record.program.name for record in records] == ["ours", "onnxruntime"]
    for name in SPOILT:
        other = name in ("a dimension", "an output")
        assert ("have other shapes than those" if other else "times what rounding of") in refused[name]
    assert {*records[0].program.notes["wrong"]} == {"a value", "a whole number, which has no tolerance", "NaN"}


@pytest.mark.parametrize(("changed", "passes"), [(1e-3, True), (5e-4, False), (0, False)])
def test_outputs_may_differ_by_four_times_what_optimisations_change(changed, passes, tmp_path, monkeypatch):
    off = type("Off", (OnnxRuntime,), {"arrays": lambda self, out: [out[0] * np.float32(1.003), out[1]]})
    monkeypatch.setitem(calls.PROGRAMS["network"], "off", off)
    case = OnnxCase("mine", saved(tmp_path / "a.onnx"), 1, [2])
    plain = case._plain.run

    def optimised(names, feed):
        y, place = plain(names, feed)
        return [y * np.float32(1 + changed), place]

    case._optimised = SimpleNamespace(run=optimised)
    ((_, records, refused),) = compared(case, "off")
    assert (len(records), [*refused]) == ((2, []) if passes else (1, ["off"]))
    assert case.spread == pytest.approx(changed, rel=0.01, abs=1e-6)


def test_a_model_of_fixed_shapes_has_one_batch(tmp_path):
    path = saved(tmp_path / "a.onnx", 3, 4)
    ((batch, records, _),) = compared(OnnxCase("mine", path, 1, None))
    assert (batch, records[0].problem.batch_columns) == (3, 3)
    refuses("--batches: .*a.onnx takes calls of 3 alone, since its shapes are fixed", OnnxCase, "mine", path, 1, [1])


def test_inputs_that_the_model_does_not_take_are_refused(tmp_path):
    path, x, ids = saved(tmp_path / "a.onnx"), np.ones((2, 3, 8)), np.zeros((2, 3), np.int64)
    for arrays, sentence in (
        ({"x": x}, "x.npz: 1 input; it takes ids, x"),
        ({"x": x[..., :7], "ids": ids}, r"x has shape \(2, 3, 7\); the model takes \(batch, tokens, 8\)"),
        ({"x": x[0], "ids": ids}, r"x has shape \(3, 8\); the model takes \(batch, tokens, 8\)"),
        ({"x": x[:0], "ids": ids}, "x.npz: x has no inputs"),
        ({"x": x, "ids": ids + 0.5}, "ids is of float64; the model takes int64"),
    ):
        np.savez(tmp_path / "x.npz", **arrays)
        refuses(sentence, OnnxCase, "mine", path, 1, [2], str(tmp_path / "x.npz"))


@pytest.mark.parametrize(("density", "reference"), [(0.1, "float64"), (0.9, "ONNX Runtime without optimisations")])
def test_a_chain_is_compared_with_float64_where_it_is_pruned(density, reference, tmp_path):
    from onnx_models import Maker

    made = Maker(40)
    made.add("Gemm", made.draw(40, 30, density=density))
    path = str(made.save(tmp_path / "a.onnx"))
    unsaid = dict.fromkeys(("zeros", "batches", "inputs", *READING))
    assert _case(SimpleNamespace(network=path, **unsaid), 1)[0].reference == reference
