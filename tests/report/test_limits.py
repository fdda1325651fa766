"""The page's section on limits: roofs are what was measured, distances what the record's own numbers come to."""

import itertools
import math
import re
import statistics

import pytest
from test_report import HOSTILE, collected, data, drawn, made_record, measured, shown
from test_scaling import on

from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN
from spdnn.report.common.plotting import fold
from spdnn.report.limits import section as limit_figures
from spdnn.report.limits.section import values

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


def figures(records):
    return drawn("limits", records)


def table(drawing):
    return {row["case"]: row for row in data(drawing)}


def best(record):
    """The machine's best samples."""
    return {name: max(record["machine"][f"{name}_rates"]) for name in ("load", "l2_load", "copy")}


def by_hand(record):
    """(rate, intensity or None, seconds of the limit, ceiling): by the roofline model, from the record's JSON."""
    machine, result, ranks = best(record), record["result"], record["ranks"]
    edges, moved = result["edges_computed"], result.get("bytes_moved")
    loaded = 4 * edges if result.get("bytes_loaded") is None else result["bytes_loaded"]
    if ranks > 1:
        busiest = max(rank["edges_computed"] for rank in record["distribution"]["per_rank"])
        loaded = max(loaded / ranks, loaded - 4 * (edges - busiest))
    loads, memory = loaded / machine["load"], (moved or 0) / ranks / machine["copy"]
    rate = edges / statistics.median(record["inference_seconds"])
    return rate, edges / moved if moved else None, max(loads, memory), "memory" if memory > loads else "loads"


def marks(drawing):
    """Of each record's number: where its mark is in the SVG."""
    found = re.findall(rf'<g id="{drawing.name}-record-(\d+)">.*?x="([-\d.]+)" y="([-\d.]+)"', drawing.svg, re.S)
    return {int(number): (float(x), float(y)) for number, x, y in found}


def line(drawing, name):
    """The first and the last point of a roof."""
    path = re.search(rf'<g id="{drawing.name}-roof-{name}">\s*<path d="([^"]*)"', drawing.svg).group(1)
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path)]
    return points[0], points[-1]


def test_numbers_are_what_the_records_come_to():
    records = [*several(), measured(on(4, (0.5, 0.25, 0.75), uneven=1.5))]
    page, drawn = shown(records), figures(records)
    shares = []
    for record in records:
        rate, intensity, seconds, ceiling = by_hand(record)
        took, machine, ranks = (statistics.median(record["inference_seconds"]), best(record), record["ranks"])
        roofs = [
            machine["load"] / 4 * ranks, machine["l2_load"] / 4 * ranks,
            machine["copy"] * ranks,
        ]  # fmt: skip
        limit = record["result"]["edges_computed"] / seconds
        values = [rate, seconds, seconds / took, limit, *roofs]
        for value in [*values, *([intensity] if intensity else [])]:
            assert any(math.isclose(value, shown_value, rel_tol=1e-9) for shown_value in page.values), record["case"]
        cells = next(table(one)[record["case"]] for name, one in drawn.items()
                     if name.startswith("roofline-") and record["case"] in table(one))  # fmt: skip
        assert [float(cells["10^9 edges/s"]), float(cells["10^9 edges/s at its own limit"])] == pytest.approx(
            [rate / 1e9, limit / 1e9]
        )
        assert cells["edges per byte moved"] == ("" if intensity is None else str(intensity))
        assert [float(cells[name]) for name in list(cells)[-3:]] == pytest.approx([roof / 1e9 for roof in roofs])
        assert cells["ceiling that binds"] == {"memory": "memory", "loads": "loads from the nearest cache"}[ceiling]
        shares.append((100 * seconds / took, record["case"]))
    ordered = sorted(shares, reverse=True)
    assert [float(row["share of the limit, %"]) for row in table(drawn["limit-shares"]).values()] == pytest.approx(
        [share for share, _ in ordered]
    )
    rows = page.source[page.source.index('aria-label="Limits by case"') :]
    numbers = map(int, re.findall(r'<tr data-record="(\d+)"', rows.split("</table>")[0]))
    cases = [record.case for record in collected(records).records]
    assert [cases[number] for number in numbers] == [case for _, case in ordered]


def test_marks_and_roofs_are_where_they_belong():
    records = several()
    drawing = figures(records)["roofline-1"]
    numbers = {run.case: run.number for run in collected(records).runs}
    known = {record["case"]: by_hand(record)[:2] for record in records}
    at = {case: marks(drawing)[number] for case, number in numbers.items()}
    # Two marks give the scales of both axes.
    one, other = "loads", "memory"
    across = (at[other][0] - at[one][0]) / math.log(known[other][1] / known[one][1])
    up = (at[other][1] - at[one][1]) / math.log(known[other][0] / known[one][0])
    assert across > 0 > up  # the SVG's y goes down

    def place(intensity, rate):
        return at[one][0] + across * math.log(intensity / known[one][1]), at[one][1] + up * math.log(
            rate / known[one][0]
        )

    for case, (rate, intensity) in known.items():
        x, y = place(intensity or 1.0, rate)
        assert at[case][1] == pytest.approx(y, abs=0.01)
        if intensity:
            assert at[case][0] == pytest.approx(x, abs=0.01)
    highest = {name: max(best(record)[name] for record in records)
               for name in ("load", "l2_load", "copy")}  # fmt: skip
    for name, rate in (("loaded_edges", highest["load"] / 4), ("second_edges", highest["l2_load"] / 4)):
        (begin, left), (end, right) = line(drawing, name)
        assert left == pytest.approx(right) == pytest.approx(place(1.0, rate)[1], abs=0.01)
        assert begin == pytest.approx(place(rate / highest["copy"], rate)[0], abs=0.01)
        # Runs that do not tell are on the right of all that do, under the flat roofs.
        assert max(at[case][0] for case in at if known[case][1]) < at["not-told"][0] < end
        assert max(at[case][0] for case in at if known[case][1]) < at["nothing-moved"][0] < end
    (x, y), (ridge, top) = line(drawing, "copies")
    assert top == pytest.approx(place(1.0, highest["load"] / 4)[1], abs=0.01)
    intensity = known[one][1] * math.exp((x - at[one][0]) / across)
    assert y == pytest.approx(place(1.0, intensity * highest["copy"])[1], abs=0.02)
    assert (y - top) / (x - ridge) == pytest.approx(up / across, rel=1e-3)


def test_a_figure_says_what_its_roofs_and_marks_are():
    drawing = figures(several())["roofline-1"]
    for text in ("loads from the nearest cache: 250 to 500 · 10⁹ edges/s", "memory: 100 to 150 · 10⁹ bytes/s",
                 "loads from the second-level cache: 125 to 175 · 10⁹ edges/s", "none, or not"):  # fmt: skip
        assert f">{text}<" in drawing.svg
    caption = drawing.caption
    assert "Short lines on the right: runs that moved no bytes past the caches, or did not record it." in caption
    assert "any of 6 runs, shaded down to the lowest" in caption
    alone = figures([run()])["roofline-1"]
    assert "Short lines" not in alone.caption
    assert "shaded" not in alone.caption
    assert ">none, or not<" not in alone.svg
    assert ">loads from the nearest cache: 250 · 10⁹ edges/s<" in alone.svg
    for case in ("loads", "memory", "not-told"):
        assert re.search(f">[^<]*{case}<", drawing.svg)
    assert all(f"{number}" in drawing.svg for number in marks(drawing))


def test_each_machine_has_roofs_of_its_own():
    records = [
        run("two"), run("one", threads=1), measured(on(2, (0.5,), case="ranks")), run("gpu", gpu="A GPU", moved=None),
    ]  # fmt: skip
    panels = values(collected(records))["panels"]
    assert [panel["name"] for panel in panels] == [
        "A CPU, 2 cores, x86_64_v3, 1 thread", "A CPU, 2 cores, x86_64_v3, 2 threads",
        "A CPU, 8 cores, x86_64_v3, 2 ranks of 2 threads",
        "A GPU (A CPU, 2 cores), sm_90",
    ]  # fmt: skip
    assert [[row["run"].case for row in panel["rows"]] for panel in panels] == [["one"], ["two"], ["ranks"], ["gpu"]]
    assert panels[2]["roofs"]["loaded_edges"] == (5e11, 5e11)
    on_device = figures(records)["roofline-4"].svg
    for text in ("loads from shared memory: 250 · 10⁹ edges/s", "the GPU's memory: 100 · 10⁹ bytes/s"):
        assert f">{text}<" in on_device
    assert "nearest cache" not in on_device
    assert [name for name in figures(records) if name != "limit-shares"] == [f"roofline-{k}" for k in range(1, 5)]


def test_devices_of_a_task_graph_are_one_machine():
    records = [run("one", gpu="A GPU"), run("two", gpu="A GPU")]
    records[1]["engine"] = {"name": "taskgraph-cuda", "notes": {"devices": 2}}
    names = [panel["name"] for panel in values(collected(records))["panels"]]
    assert names == ["A GPU (A CPU, 2 cores), sm_90", "A GPU (A CPU, 2 cores), sm_90, 2 GPUs"]
    records[1]["engine"]["notes"]["devices"] = "two"
    assert len(values(collected(records))["panels"]) == 1


def test_many_runs_and_machines_are_all_in_the_table():
    records = [run(f"run-{place:02}", (0.25 + place / 64,)) for place in range(MOST_DRAWN + 3)]
    drawn, page = figures(records), shown(records)
    assert len(marks(drawn["roofline-1"])) == len(records)
    assert f"The {MOST_DRAWN} nearest to their limit have their names." in drawn["roofline-1"].caption
    named = [record["case"] for record in records if f"{record['case']}</text>" in drawn["roofline-1"].svg]
    assert named == [record["case"] for record in records[:MOST_DRAWN]]  # the fastest
    assert "cases" not in drawn["limit-shares"].caption
    body = page.source[page.source.index('aria-label="Limits by case"') :]
    assert all(f">{record['case']}</span>" in body for record in records)
    many = figures([run(f"run-{place:02}", (0.25 + place / 64,)) for place in range(MOST_BARS + 3)])["limit-shares"]
    assert f"The first {MOST_BARS} of {MOST_BARS + 3} cases; the table has all." in many.caption
    assert len(marks(many)) == MOST_BARS
    machines = [run(f"run-{place:02}", threads=place + 1) for place in range(MOST_DRAWN + 2)]
    page = shown(machines, figures=True)
    assert f'id="roofline-{MOST_DRAWN}-record-' in page.source
    assert f'id="roofline-{MOST_DRAWN + 1}-record-' not in page.source
    assert "2 machines more are in the table, without a figure." in page.text


def test_a_run_of_no_edges_is_in_the_table_alone():
    record = run("none")
    record["result"] |= {"edges_computed": 0, "bytes_moved": 0, "bytes_loaded": 0}
    section = values(collected([record]))
    assert section["panels"] == []
    assert section["rows"][0]["own_rate"] is None
    assert "limit-shares" in figures([record, run("some")])


def test_nothing_measured_is_no_section():
    page = shown([made_record()])
    assert 'id="limits"' not in page.source
    assert 'href="#limits"' not in page.source
    assert 'href="#limits"' in shown([run()]).source


def test_hostile_names_stay_text():
    record = run(HOSTILE, gpu=HOSTILE)
    page = shown([record, run(HOSTILE + "2", moved=None)], figures=True)
    assert page.runs_nothing_else()
    assert "<script>alert(" in figures([record])["roofline-1"].csv


@pytest.mark.parametrize(
    ("text", "lines"),
    [("short", "short"), ("aaaa.bbbb.cccc", "aaaa.bbbb.\ncccc"), ("a" * 12, "a" * 10 + "\naa"), ("", ""),
     ("aaaa.bbbb.cccc.dddd.eeee", "aaaa.bbbb.\ncccc.dddd…"), ("aaaa bbbbbbbb", "aaaa \nbbbbbbbb")],
)  # fmt: skip
def test_long_names_are_folded(text, lines):
    assert fold(text, 10) == lines


def test_labels_are_moved_apart_and_stay_below_the_top():
    heights, sizes = [0.1, 0.12, 0.5, 0.93, 0.96], [0.1, 0.06, 0.04, 0.08, 0.06]
    found = limit_figures._spread(heights, sizes)
    ends = [(place - size / 2, place + size / 2) for place, size in zip(found, sizes, strict=True)]
    assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(ends))
    assert ends[-1][1] <= 1
    assert found[2:] == pytest.approx([0.5, 0.9, 0.97])  # no further than they must
