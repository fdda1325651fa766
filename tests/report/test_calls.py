"""The page's section on calls of one's own network: by batch and program, from records of hostile names too."""

import re

from operation_cases import made_operation
from test_report import HOSTILE, drawn, shown, typed

from spdnn.report.calls import section
from spdnn.report.common.collection import collect
from spdnn.report.operations import values as operations
from spdnn.runs.records.operation_record import OperationRecord


def call(name="ours", batch=1, seconds=(0.001, 0.0011, 0.0012), network="my net", **more):
    """A record of one program that calls a network with so many inputs."""
    record = made_operation(name, seconds, "network", network=network, layer="3 layers", set_name="own", **more)
    record["problem"]["batch_columns"] = batch
    return record


def calls():
    return [call(name, batch, (scale, scale, scale)) for batch in (1, 64)
            for name, scale in (("ours", 0.001), ("scipy", 0.003), ("blas", 0.002))]  # fmt: skip


def networks(records):
    return section.values(collect([], operations=[typed(record, OperationRecord) for record in records]))["networks"]


def test_the_section_has_a_row_for_each_batch_and_program():
    page = shown(calls())
    text = page.text.split("Latency and throughput by batch")[1]
    assert "my net, 2 threads" in text
    assert "Calls of my net by batch size" in text
    assert "1.00 ms" in text
    assert text.index("64 inputs take 1.00 ms: 2.0 times") < text.index("A turn is several calls")
    assert {3.0, 2.0, 64000.0} <= set(page.values)
    assert "Our products and those of other libraries" not in page.text
    records = [typed(one, OperationRecord) for one in calls()]
    (figure,) = drawn("calls", collect([], operations=records)).values()
    assert figure.title == "Inputs a second by inputs of a call, my net"
    assert "blas,64,0.002,32000.0,2.0" in figure.csv


def test_the_page_of_calls_alone_begins_with_their_times():
    page = shown(calls())
    (heading,) = re.findall(r"<h1>(.*?)</h1>", page.source)
    assert heading == (
        "my net: 64 inputs in 1.00 ms, 2.0 times as fast as dense BLAS; 1 input in 1.00 ms, 2.0 times as fast as dense "
        "BLAS"
    )
    assert "All 6 timed programs passed verification. Compared: all output values" in page.text
    assert "Machines and software" in page.text
    for absent in ("How to reproduce each run", "Glossary", "Lossy", "Times in", "0 passed"):
        assert absent not in page.text
    assert "busy machine in" not in page.text
    busy = [one | {"load": {"others": 0.5, "throttled": None}} for one in calls()]
    assert "busy machine in both batch sizes" in shown(busy).text
    two = shown([*calls(), call(network="another", seconds=(1.0, 1.0, 1.0))])
    assert "<h1>another and my net: all 7 timed programs passed verification</h1>" in two.source
    alone = shown([call(seconds=(0.002,) * 3)])
    assert "<h1>my net: 1 input in 2.00 ms</h1>" in alone.source


def test_a_ratio_whose_interval_has_1_in_it_is_no_difference():
    ours, theirs = call(seconds=(1.0, 2.0, 1.0, 2.0, 1.0)), call("scipy", seconds=(2.0, 1.0, 1.1, 2.2, 1.0))
    assert networks([ours, theirs])[0]["results"] == ["1 input takes 1.00 s: no clear difference from SciPy"]


def test_the_latest_comparison_of_a_batch_counts_and_others_are_not_mixed():
    later = [{**call(name, 1, (s, s, s), comparison="e" * 16), "created": "2026-01-02T03:04:05Z"}
             for name, s in (("ours", 0.001), ("scipy", 0.005))]  # fmt: skip
    (one,) = networks([*calls(), *later, call("blas", 64, (1.0, 1.0, 1.0), comparison="f" * 16)])
    assert [[row["name"] for row in entry["rows"]] for entry in one["batches"]] == [
        ["ours", "scipy"], ["ours", "blas", "scipy"],
    ]  # fmt: skip
    assert one["batches"][0]["rows"][1]["ratio"].median == 5
    assert len(networks([*calls(), call(network="another")])) == 2


def test_sparse_operations_and_calls_are_apart():
    records = [typed(one, OperationRecord) for one in [*calls(), made_operation()]]
    assert operations.values(collect([], operations=records))["records"] == 1
    assert section.values(collect([], operations=records[-1:])) is None


def test_nothing_in_a_record_is_code():
    record = call()
    record["program"]["version"] = record["environment"]["command"] = HOSTILE
    record["program"]["notes"]["layout"] = HOSTILE
    page = shown([record, call("scipy")])
    assert HOSTILE not in page.source
