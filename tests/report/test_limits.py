"""The section on limits: roofs are what was measured, distances what the record's own numbers come to."""

import itertools
import statistics

import pytest
from records import collected, figures_of, made_record, measured, table_of, texts, told
from test_scaling import on

from spdnn.report import limits
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, save, style
from spdnn.report.common.plotting import fold
from spdnn.report.limits import limit_rows, panels, section

FASTER = {"load": 2e12, "l2_load": 7e11, "copy": 1.5e11}


def run(case="run", seconds=(0.25,), moved=10**9, loaded=None, gpu=None, threads=2, **machine):
    """A measured record; `moved`: None where it does not tell."""
    record = made_record(case, seconds)
    record["threads"] = threads
    record["result"] |= {"bytes_moved": moved, "bytes_loaded": loaded}
    if gpu:
        record["environment"]["gpu"], machine = gpu, {"instruction_set": "sm_90", **machine}
    return measured(record, **machine)


def several():
    return [
        run("loads"),
        run("memory", (0.5,), moved=4 * 10**10),
        run("bits", (0.125,), loaded=10**10),
        run("not-told", (0.375,), moved=None),
        run("nothing-moved", (1.0,), moved=0),
        run("faster", (0.75,), **FASTER),
    ]


def rows(records):
    return limit_rows(collected(records))


def figures(records):
    return figures_of(section(collected(records)))


def plotted(figure):
    """By gid, the points of what the figure plots."""
    with style():
        (axes,) = figure.plot(False).axes
    lines = {line.get_gid(): line.get_xydata().tolist() for line in axes.lines}
    return lines | {marks.get_gid(): marks.get_offsets().tolist() for marks in axes.collections}


def best(record):
    """The machine's best samples."""
    return [max(record["machine"][f"{name}_rates"]) for name in ("load", "l2_load", "copy")]


def by_hand(record):
    """(rate, intensity or None, seconds of the limit, what binds): by the roofline model, from the record's JSON."""
    (load, _, copy), result, ranks = best(record), record["result"], record["ranks"]
    edges, moved = result["edges_computed"], result["bytes_moved"]
    loaded = 4 * edges if result["bytes_loaded"] is None else result["bytes_loaded"]
    if ranks > 1:
        busiest = max(rank["edges_computed"] for rank in record["distribution"]["per_rank"])
        loaded = max(loaded / ranks, loaded - 4 * (edges - busiest))
    loads, memory = loaded / load, (moved or 0) / ranks / copy
    binds = "memory" if memory > loads else "loads from the nearest cache"
    rate = edges / statistics.median(record["inference_seconds"])
    return rate, edges / moved if moved else None, max(loads, memory), binds


def test_numbers_are_what_the_records_come_to():
    records = [*several(), measured(on(4, (0.5, 0.25, 0.75), uneven=1.5))]
    known, drawings = {record["case"]: record for record in records}, figures(records)
    drawn = {row[0]: row[1:] for name, one in drawings.items() if name != "limit-shares" for row in one.rows}
    for row in rows(records):
        record = known[row.run.case]
        rate, intensity, seconds, binds = by_hand(record)
        load, second, copy = (rate * record["ranks"] for rate in best(record))
        edges, loaded = record["result"]["edges_computed"], record["result"]["bytes_loaded"]
        share = seconds / statistics.median(record["inference_seconds"])
        assert (row.share, row.edge_bytes) == pytest.approx((share, 4 if loaded is None else loaded / edges))
        assert row.roofs == pytest.approx((load / 4, second / 4, copy))
        assert (drawn[row.run.case][0], drawn[row.run.case][4]) == (intensity, binds)
        numbers = [rate / 1e9, edges / seconds / 1e9, 100 * share, *(roof / 1e9 for roof in row.roofs)]
        assert [*drawn[row.run.case][1:4], *drawn[row.run.case][5:]] == pytest.approx(numbers)
    ordered = sorted(((by_hand(record)[2] / statistics.median(record["inference_seconds"]), case)
                      for case, record in known.items()), reverse=True)  # fmt: skip
    assert [row.run.case for row in rows(records)] == [case for _, case in ordered]
    assert [row[1] for row in drawings["limit-shares"].rows] == pytest.approx([100 * share for share, _ in ordered])


def test_the_table_has_rates_in_billions_and_limits_below():
    records = [run("told", moved=10**10), run("untold", (0.5,), moved=None)]
    first, other = texts(table_of(section(collected(records)), "Limits by case"))
    edges = 32 * 1024 * 120 * 60_000 / 10
    assert first == {
        "Case": "1,024 × 120 told",
        "Share reached": f"{100 * 0.1 / 0.25:.1f} %",
        "Ceiling that binds": "memory",
        "Edges really computed a second; at the limit, 10⁹": f"{edges / 0.25 / 1e9:.2f} ({edges / 0.1 / 1e9:.1f})",
        "Inference; at the limit, seconds": "0.2500 (0.1000)",
        "Load ceiling, edges a second, 10⁹": "250.0",
        "Second-level cache, edges a second, 10⁹": "125.0",
        "Memory ceiling, bytes a second, 10⁹": "100.0",
        "Bytes moved; edges per byte": f"9.3 GiB ({edges / 10**10:.3f})",
        "Bytes an edge gathered": "4.000",
    }
    assert other["Bytes moved; edges per byte"] == "not recorded"


def test_marks_and_roofs_are_where_they_belong():
    records = several()
    points, known = plotted(figures(records)["roofline-1"]), {}
    for number, record in ((run.number, record) for run in collected(records).runs for record in records
                           if record["case"] == run.case):  # fmt: skip
        rate, known[number], _, _ = by_hand(record)
        (at,) = points[f"record-{number}"]
        assert at == pytest.approx([known[number] or at[0], rate / 1e9])
    # Runs that do not tell are on the right of all that do, under the flat roofs.
    across = {number: points[f"record-{number}"][0][0] for number in known}
    end = max(across[number] for number in known if known[number])
    assert all(end < across[number] < points["roof-loads"][1][0] for number in known if not known[number])
    load, second, copy = map(max, zip(*map(best, records), strict=True))
    for name, rate in (("loads", load / 4), ("second", second / 4)):
        (begin, left), (_, right) = points[f"roof-{name}"]
        assert (begin, left, right) == pytest.approx((rate / copy, rate / 1e9, rate / 1e9))
    assert all(y == pytest.approx(x * copy / 1e9) for x, y in points["roof-copies"])
    assert points["roof-copies"][1][0] == pytest.approx(load / 4 / copy)


def test_a_figure_says_what_its_roofs_and_marks_are():
    for records, loads, whole in ((several(), "250 to 500", True), ([run()], "250", False)):
        figure = figures(records)["roofline-1"]
        with style():
            svg = save(figure, "limits").svg
        assert f">loads from the nearest cache: {loads} · 10⁹ edges/s<" in svg
        assert (">none, or not<" in svg) == ("Short lines on the right" in figure.caption) == whole
        assert ("any of 6 runs, shaded down to the lowest" in figure.caption) == whole


def test_each_machine_has_roofs_of_its_own():
    records = [
        run("two"), run("one", threads=1), measured(on(2, (0.5,), case="ranks")), run("gpu", gpu="A GPU", moved=None),
    ]  # fmt: skip
    found = panels(rows(records))
    assert [(panel.machine, [row.run.case for row in panel.rows]) for panel in found] == [
        ("A CPU, 2 cores, x86_64_v3, 1 thread", ["one"]), ("A CPU, 2 cores, x86_64_v3, 2 threads", ["two"]),
        ("A CPU, 8 cores, x86_64_v3, 2 ranks of 2 threads", ["ranks"]), ("A GPU (A CPU, 2 cores), sm_90", ["gpu"]),
    ]  # fmt: skip
    assert found[2].roofs[0] == (5e11, 5e11)
    assert found[3].rows[0].binds == "loads from shared memory"
    assert sorted(figures(records)) == ["limit-shares", *(f"roofline-{k}" for k in range(1, 5))]


def test_devices_of_a_task_graph_are_one_machine():
    records = [run("one", gpu="A GPU"), run("two", gpu="A GPU")]
    records[1]["engine"] = {"name": "taskgraph-cuda", "notes": {"devices": 2}}
    names = [panel.machine for panel in panels(rows(records))]
    assert names == ["A GPU (A CPU, 2 cores), sm_90", "A GPU (A CPU, 2 cores), sm_90, 2 GPUs"]
    records[1]["engine"]["notes"]["devices"] = "two"
    assert len(panels(rows(records))) == 1


def test_of_many_runs_and_machines_figures_show_the_first():
    records = [run(f"run-{place:02}", (0.25 + place / 64,)) for place in range(MOST_BARS + 3)]
    roofline, shares = figures(records)["roofline-1"], figures(records)["limit-shares"]
    assert len(plotted(roofline).keys() - {None, "roof-loads", "roof-second", "roof-copies"}) == len(records)
    with style():
        svg = save(roofline, "limits").svg
    named = [record["case"] for record in records if f"{record['case']}</text>" in svg]
    assert named == [record["case"] for record in records[:MOST_DRAWN]]  # the fastest
    assert f"The first {MOST_BARS} of {MOST_BARS + 3} cases; the table has all." in shares.caption
    assert [row[0] for row in shares.rows] == [record["case"] for record in records[:MOST_BARS]]
    machines = [run(f"run-{place:02}", threads=place + 1) for place in range(MOST_DRAWN + 2)]
    assert len(figures(machines)) == MOST_DRAWN + 1
    assert "2 machines more are in the table, without a figure." in told(section(collected(machines)))


def test_a_run_of_no_edges_is_in_the_table_alone():
    record = run("none")
    record["result"] |= {"edges_computed": 0, "bytes_moved": 0, "bytes_loaded": 0}
    (row,) = rows([record])
    assert (panels([row]), row.own_rate, row.edge_bytes) == ([], None, None)
    assert list(figures([record, run("some")])) == ["roofline-1", "limit-shares"]


def test_what_was_not_measured_is_named():
    assert section(collected([made_record()])) is None
    sentences = told(section(collected([made_record("without"), run()])))
    assert "The machine was not measured with 1 run: without." in sentences


@pytest.mark.parametrize(
    ("text", "lines"),
    [("short", "short"), ("aaaa.bbbb.cccc", "aaaa.bbbb.\ncccc"), ("a" * 12, "a" * 10 + "\naa"), ("", ""),
     ("aaaa.bbbb.cccc.dddd.eeee", "aaaa.bbbb.\ncccc.dddd…"), ("aaaa bbbbbbbb", "aaaa \nbbbbbbbb")],
)  # fmt: skip
def test_long_names_are_folded(text, lines):
    assert fold(text, 10) == lines


def test_labels_are_moved_apart_and_stay_below_the_top():
    heights, sizes = [0.1, 0.12, 0.5, 0.93, 0.96], [0.1, 0.06, 0.04, 0.08, 0.06]
    found = limits.spread(heights, sizes)
    ends = [(place - size / 2, place + size / 2) for place, size in zip(found, sizes, strict=True)]
    assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(ends))
    assert ends[-1][1] <= 1
    assert found[2:] == pytest.approx([0.5, 0.9, 0.97])  # no further than they must
