"""Calls of one's own network: by batch and program, from whole comparisons alone."""

from dataclasses import replace

from operation_cases import made_operation
from records import cells, collected, figures_of, section_of, shown, table_of, texts, told, typed

from spdnn.cli import bench_model
from spdnn.core.table import BYTES, Column
from spdnn.report import calls as calls_section
from spdnn.report import page as page_module
from spdnn.report.calls import CALLS, called
from spdnn.runs.records.operation_record import OperationRecord


def call(name="ours", batch=1, seconds=(0.001, 0.0011, 0.0012), network="my net", **more):
    """A record of one program that calls a network with so many inputs."""
    record = made_operation(name, seconds, "network", network=network, layer="3 layers", set_name="own", **more)
    record["problem"]["batch_columns"] = batch
    return record


def calls():
    return [call(name, batch, (scale, scale, scale)) for batch in (1, 64)
            for name, scale in (("ours", 0.001), ("scipy", 0.003), ("blas", 0.002))]  # fmt: skip


CALLED = "Calls by batch size: my net, 2 threads"


def networks(records):
    return called(collected(operations=records))


def test_a_row_for_each_batch_and_program_with_its_numbers():
    section = section_of("calls", collected(operations=calls()))
    table = table_of(section, CALLED)
    names = ("inputs_per_call", "median_time_seconds", "inputs_a_second", "times_as_long_as_ours")
    rows = [(row["program"], *(float(row[name]) for name in names)) for row in cells(table)]
    assert rows == [
        (name, batch, seconds, batch / seconds, seconds / 0.001)
        for batch in (1, 64) for name, seconds in (("ours", 0.001), ("blas", 0.002), ("scipy", 0.003))
    ]  # fmt: skip
    first = texts(table)[1]
    assert first["Times as long as ours"] == "2.00 (2.00 to 2.00; fastest 2.00)"
    assert (first["Median time"], first["Version and layout"]) == ("2.00 ms", "blas 1.2")
    assert texts(table)[2]["Version and layout"] == "scipy 1.2; 1 thread used"
    text = told(section)
    assert text.index("64 inputs take 1.00 ms: 2.0 times as fast as dense BLAS") < text.index("A turn is several calls")
    (figure,) = figures_of(section).values()
    assert figure.title == "Inputs a second by inputs of a call, my net"
    assert [tuple(row[:5]) for row in figure.rows] == [(name, b, s, rate, t) for name, b, s, rate, t in rows]


def test_the_precision_and_the_error_of_each_program():
    precisions = {"ours": ("float32", 2e-7), "openvino": ("bfloat16", 0.0046), "openvino-f32": ("float32", 3e-7)}
    records = [call(name, 1, (s, s, s)) for name, s in zip(precisions, (0.002, 0.001, 0.004), strict=True)]
    for record, (precision, error) in zip(records, precisions.values(), strict=True):
        record["program"]["notes"]["precision"] = precision
        record["verification"] |= {"error": error, "rule": f"within rounding of {precision}"}
    section = section_of("calls", collected(operations=records))
    rows = [(row["program"], row["precision"], float(row["largest_error"])) for row in cells(table_of(section, CALLED))]
    assert rows == [(name, *precisions[name]) for name in ("ours", "openvino", "openvino-f32")]
    (one,) = networks(records)
    assert one.results == [
        "1 input takes 2.00 ms: 2.0 times slower than OpenVINO (bfloat16, error 0.460 %), "
        "2.0 times as fast as OpenVINO in float32"
    ]
    assert "Verified: within rounding of float32; within rounding of bfloat16." in told(section)


def test_a_ratio_whose_interval_has_1_in_it_is_no_difference():
    ours, theirs = call(seconds=(1.0, 2.0, 1.0, 2.0, 1.0)), call("scipy", seconds=(2.0, 1.0, 1.1, 2.2, 1.0))
    assert networks([ours, theirs])[0].results == ["1 input takes 1.00 s: no clear difference from SciPy"]
    assert networks([call(seconds=(0.002,) * 3)])[0].results == ["1 input takes 2.00 ms"]


def test_the_latest_comparison_of_a_batch_counts_and_others_are_not_mixed():
    later = [{**call(name, 1, (s, s, s), comparison="e" * 16), "created": "2026-01-02T03:04:05Z"}
             for name, s in (("ours", 0.001), ("scipy", 0.005))]  # fmt: skip
    (one,) = networks([*calls(), *later, call("blas", 64, (1.0, 1.0, 1.0), comparison="f" * 16)])
    assert [[call.name for call in batch] for batch in one.batches] == [["ours", "scipy"], ["ours", "blas", "scipy"]]
    assert one.batches[0][1].ratio.median == 5
    assert len(networks([*calls(), call(network="another")])) == 2


def test_sparse_operations_are_no_calls():
    assert section_of("calls", collected(operations=[made_operation()])) is None


def test_a_column_more_is_one_line_and_is_everywhere(monkeypatch, capsys):
    """On the page, in its CSV, on the terminal of `spdnn bench model` and in the documentation's Markdown."""
    operand = Column("Operands", lambda call: call.record.operand_bytes, BYTES)
    table = replace(CALLS, columns=[*CALLS.columns, operand])
    monkeypatch.setattr(calls_section, "CALLS", table)
    page = shown([*calls(), call(network="with a column more")])
    assert page.text.count("Operands") == 2
    assert page.values.count(1 << 20) == 7
    rows = networks(calls())[0].batches[0]
    assert table.csv(rows).splitlines()[0].endswith(",version_and_layout,operands_bytes")
    assert all(line.endswith(",1048576") for line in table.csv(rows).splitlines()[1:])
    assert [line.split("  ")[-1].strip() for line in table.text(rows).splitlines()] == ["Operands", *["1.0 MiB"] * 3]
    assert [line.split("|")[-2].strip() for line in table.markdown(rows).splitlines()[2:]] == ["1.0 MiB"] * 3
    bench_model._print([typed(one, OperationRecord) for one in calls()[:3]])
    assert capsys.readouterr().out == f"{table.text(rows)}\n"
    (written,) = page_module.tables([section_of("calls", collected(operations=calls()))])
    assert written.csv.splitlines()[0].endswith(",operands_bytes")
