"""`spdnn bench` against PyTorch: eager and compiled, both with the outputs that the oracle allows."""

import numpy as np

import spdnn
from spdnn.bench import calls
from spdnn.bench.contest import ComparisonSettings
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord


def test_torch_and_its_compiler_have_numbers():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=shape) * (rng.random(shape) < 0.2) for shape in ((40, 60), (60, 7))]
    for clip in (None, 2.5):
        network = spdnn.from_matrices(matrices, [rng.normal(size=60), 0.1], clip=clip, last="none")
        case = calls.NetworkCase("mine", network, calls.draw_rows(70, 40, 0.5), [1, 70])
        for records, refused in calls.compare_calls(case, ComparisonSettings(2, ["torch", "torch-compile"], 0.0, "x")):
            assert refused == {}
            assert [record.program.name for record in records] == ["ours", "torch", "torch-compile"]
            for record in records:
                check_content(OperationRecord, record, "record")
