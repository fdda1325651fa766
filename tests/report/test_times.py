"""Where the time goes: every part is what the record's own numbers come to, none is guessed."""

import statistics

import numpy as np
import pytest
from records import cells, collected, figures_of, made_record, section_of, solved, table_of, texts, told
from test_scaling import on
from test_schedules import scheduled

from spdnn.core.table import plain
from spdnn.report import times
from spdnn.report.common.blocks import Terms
from spdnn.report.common.drawing import MOST_BARS, RECORD, style

LAST = "layer loop, resident"
WITH_COPIES = "with host-to-device copies"
STREAMED = "layer loop, weights streamed"
TICK = 1 / 64  # seconds; hand-made timelines are whole numbers of them, so sums are exact


def timed(entries, ticks, devices=1, case="task graph", span=LAST, **notes):
    """A record whose last repeat took so many ticks; entries: (device, lane, begin, end) in ticks."""
    record = scheduled("stream" if span == STREAMED else "resident", devices, (9.0, 8.0, ticks * TICK), case, False)
    kinds = {"compute": "layer", "copy-weights": "copy-weights", "move": "move"}
    listed = [[d, lane, kinds.get(lane, lane), 0, 0, 1, a * TICK, b * TICK] for d, lane, a, b in entries]
    record["engine"]["notes"] |= {"timeline": listed, "timeline_tasks": len(listed), **notes}
    record["span"] = span
    return record


def on_gpu(kernel=0.25, copied=0.5, case="gpu", notes=None, **changes):
    record = made_record(case, (0.5, 0.75, 0.375)) | changes
    record["read_seconds"] = [2.0]
    record["engine"] = {
        "name": "cuda",
        "notes": {"spans": {LAST: kernel, WITH_COPIES: kernel + copied}, **(notes or {})},
    }
    return record


def parts(record):
    return times.parts(collected([record]).runs[0])


def split(records):
    """The rows of the table of parts, by case."""
    rows = table_of(section_of("times", records), "Parts of inference")
    return {run.case: cell for run, cell in zip(rows.rows, cells(rows), strict=True)}


def lengths(figure, number):
    """How long the parts of a record's bar are on the axis."""
    with style():
        (axes,) = figure.plot(False).axes
    (bar,) = (one for one in axes.collections if one.get_gid() == f"{RECORD}{number}")
    return [np.ptp(path.vertices[:, 0]) for path in bar.get_paths()]


def by_ticks(entries, ticks, devices=1):
    """Kernel, copy, wait, unassigned and hidden, by looking at every tick of every device."""
    end = max(b for *_, b in entries)
    found = dict.fromkeys(("kernel", "copy", "wait", "unassigned", "hidden"), 0)
    for device in range(devices):
        for tick in range(ticks):
            lanes = {lane for d, lane, a, b in entries if d == device and a <= tick < b}
            if tick >= end:
                found["unassigned"] += 1
            elif "compute" in lanes:
                found["kernel"] += 1
                found["hidden"] += len(lanes) > 1
            else:
                found["copy" if lanes else "wait"] += 1
    return {name: count * TICK for name, count in found.items()}


SIMPLE = [(0, "compute", 0, 10), (0, "compute", 12, 20)]
OVERLAP = [
    (0, "copy-weights", 0, 6), (0, "compute", 4, 20), (0, "copy-weights", 10, 24), (0, "compute", 30, 40),
    (1, "copy-weights", 2, 5), (1, "compute", 5, 9), (1, "move", 4, 12), (1, "copy-weights", 11, 14),
    (1, "compute", 33, 36),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "ticks", "devices"),
    [(SIMPLE, 20, 1), (SIMPLE, 25, 1), (SIMPLE, 20, 2), (OVERLAP, 40, 2), (OVERLAP, 50, 2), (OVERLAP[::-1], 41, 3)],
)
def test_a_timeline_is_split_by_device(entries, ticks, devices):
    record, expected = timed(entries, ticks, devices), by_ticks(entries, ticks, devices)
    whole, found = ticks * TICK * devices, parts(record)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.whole == whole == sum(expected.values()) - expected["hidden"]
    (row,) = split([record]).values()
    assert float(row["all_of_it_seconds"]) == whole
    assert {name: float(row[name if name != "hidden" else "copies_hidden"]) for name in expected} == {
        name: seconds / whole for name, seconds in expected.items()
    }


def test_ranks_are_split_by_their_clocks():
    record = on(4, (0.25, 0.5, 0.75))
    ranks = record["distribution"]["per_rank"]
    whole, wait, copies = (
        sum(sum(rank[f"{name}_seconds"]) for rank in ranks) for name in ("inference", "waiting", "communication")
    )
    found = parts(record)
    assert (found.whole, found.wait, found.copy, found.kernel) == (whole, wait, copies, whole - wait - copies)
    assert (found.unassigned, found.hidden) == (0, None)
    (row,) = split([record]).values()
    assert (float(row["wait"]), float(row["copy"]), row["copies_hidden"]) == (wait / whole, copies / whole, "")
    assert row["source"] == "Clocks of the ranks, 3 repeats"
    record["span"] = STREAMED  # a rank that reads weights does not tell when
    found = parts(record)
    assert (found.kernel, found.unassigned, found.copy) == (None, whole - wait - copies, copies)


def test_a_gpu_has_its_own_seconds_of_the_last_repeat():
    found = parts(on_gpu())
    assert (found.whole, found.kernel, found.unassigned) == (0.375, 0.25, 0.125)
    assert (found.copy, found.wait, found.hidden) == (None, None, None)
    section = section_of("times", [on_gpu()])
    (row,) = texts(table_of(section, "Parts of inference"))
    assert row["Kernel"] == "66.7 % (0.2500 s)"
    assert not {"Copy", "Wait", "Copies hidden"} & row.keys()
    (row,) = cells(table_of(section, "Times by case"))
    assert float(row["of_it_copies_to_a_gpu_seconds"]) == 0.5
    (row,) = cells(table_of(section_of("times", [on_gpu(copied=2.5)]), "Times by case"))  # longer than it was read
    assert row["of_it_copies_to_a_gpu_seconds"] == ""


@pytest.mark.parametrize(
    "record",
    [
        made_record(),
        {**made_record(), "span": STREAMED},
        on_gpu(kernel=0.5),  # longer than the last repeat
        on_gpu(comparison="0123456789abcdef"),  # its notes are of another run
        on_gpu(kernel="0.25", copied=""),
        on_gpu(notes={"spans": [1, 2]}),
        on_gpu(notes={"schedule": "resident"}),  # the spans of the task graph are the host's
        timed(SIMPLE, 19),
        timed([(1, "compute", 0, 10)], 20),
        timed([(-1, "compute", 0, 10)], 20),
        timed([(0, "elsewhere", 0, 10)], 20),
        timed([(0, "compute", 10, 0)], 20),
        timed(SIMPLE, 20, timeline="none"),
        timed(SIMPLE, 20, stages=None),
        {**timed(SIMPLE, 20), "comparison": "0123456789abcdef"},
    ],
)
def test_what_a_record_does_not_have_is_not_guessed(record):
    assert parts(record) is None
    section = section_of("times", [record])
    assert "Parts of inference from" not in texts(table_of(section, "Times by case"))[0]
    assert "times-parts" not in figures_of(section)


def test_copies_inside_captured_graphs_are_unassigned():
    captured = timed(SIMPLE, 21, span=STREAMED, captured=True)
    found = parts(captured)
    assert (found.kernel, found.unassigned, found.wait, found.hidden) == (None, 19 * TICK, 2 * TICK, None)
    assert parts(timed(SIMPLE, 21, captured=True)).kernel == 18 * TICK  # weights stay, so nothing is copied
    assert parts(timed(SIMPLE, 21, span=STREAMED, captured=False)).kernel == 18 * TICK


def meanings(records):
    """The sources of parts that a section explains."""
    terms = section_of("times", records).every(Terms)
    return [plain(name) for block in terms for name, _ in block.pairs]


def test_sources_are_explained_where_they_are_and_joined_tasks_say_at_most():
    assert meanings([timed(SIMPLE, 20)]) == [times.TIMELINE]
    assert meanings([on_gpu(), on(2, (0.25,))]) == [times.RANKS, times.EVENTS]
    joined = [timed(SIMPLE, 20, timeline_tasks=3)]
    assert meanings(joined) == [times.TIMELINE, times.JOINED]
    (row,) = texts(table_of(section_of("times", joined), "Parts of inference"))
    assert row["Source"] == "Timeline, 1 device, last repeat (kernel at most)"


def test_runs_without_parts_are_counted():
    some = [timed(SIMPLE, 20), made_record("a"), {**made_record("b"), "span": STREAMED}]
    text = told(section_of("times", some))
    assert "The records of 2 other runs do not split inference into parts; where weights were streamed" in text
    assert "The records of 1 other run do not split inference into parts." in told(section_of("times", some[:2]))


def test_bars_are_read_prepare_and_inference():
    records = [made_record(f"case-{place}", (0.5 * place, 0.25 * place, place)) for place in (1, 2, 3)]
    figure = figures_of(section_of("times", records))["times-whole"]
    for place, record in enumerate(records):
        seconds = [statistics.median(record[f"{part}_seconds"]) for part in ("read", "prepare", "inference")]
        assert figure.rows[3 * place : 3 * place + 3] == [
            (record["case"], part, value) for part, value in zip(("read", "prepare", "inference"), seconds, strict=True)
        ]
        assert lengths(figure, place) == pytest.approx(seconds)


def test_bars_that_differ_very_much_are_each_their_own():
    figure = figures_of(section_of("times", [made_record("short", (0.25,)), made_record("long", (100.0,))]))[
        "times-whole"
    ]
    assert "each bar is 100 % of its own case" in figure.caption
    assert lengths(figure, 1) == pytest.approx([100 * one / 0.8125 for one in (0.5, 0.0625, 0.25)])
    assert sum(lengths(figure, 0)) == pytest.approx(100)  # by case, so "long" is first
    assert [seconds for *_, seconds in figure.rows] == [0.5, 0.0625, 100.0, 0.5, 0.0625, 0.25]


def test_bars_are_the_parts_of_the_time_to_solution_where_records_have_it():
    record = solved(made_record(), 2.5)
    section = section_of("times", [record, made_record("b")])
    rows = {part: seconds for _, part, seconds in figures_of(section)["times-whole"].rows}
    assert rows["inference"] == record["time_to_solution"]["inference"] == 0.11
    assert sum(rows.values()) == pytest.approx(2.5)
    assert told(section).startswith("Inference is 4.4 % of the time to solution; published rates leave the rest out.")


def test_shares_are_those_of_the_table():
    records = [timed(OVERLAP, 50, 2, "a"), on(2, (0.25, 0.5), case="b"), on_gpu(case="c")]
    figure, rows = figures_of(section_of("times", records))["times-parts"], split(records)
    for place, case in enumerate("abc"):
        seconds = {part: value for name, part, value in figure.rows if name == case}
        shares = {
            name: float(rows[case][name]) for name in ("kernel", "copy", "wait", "unassigned") if rows[case][name]
        }
        assert lengths(figure, place) == pytest.approx([100 * share for share in shares.values()])
        assert sum(shares.values()) == pytest.approx(1)
        whole = float(rows[case]["all_of_it_seconds"])
        assert seconds == pytest.approx({name: share * whole for name, share in shares.items()})


def test_a_figure_has_the_fastest_of_each_network_and_the_table_all():
    """Many runs of one network leave room for the others; of one network, the slowest are left out."""
    records = [on(2, (0.25 + place / 64,), case=f"case-{place:02}") for place in range(MOST_BARS + 2)]
    records.append(on(2, (9.0,), case="other", layers=480))
    figures = figures_of(section_of("times", records))
    for name in ("times-whole", "times-parts"):
        fastest = {f"case-{place:02}" for place in range(MOST_BARS - 1)}
        assert {row[0] for row in figures[name].rows} == {*fastest, "other"}
        assert f" {MOST_BARS} of {len(records)} cases, the fastest of each network before" in figures[name].caption
    assert split(records).keys() == {record["case"] for record in records}


def test_time_to_solution_is_a_row_with_its_parts():
    record = solved(made_record(), 0.5, "workflow", ["inputs"])
    section = section_of("times", [record, solved(on_gpu(), 3.5), on_gpu(case="without")])
    rows = {row["of"]: row for row in cells(table_of(section, "Time to solution by case"))}
    assert rows.keys() == {"a workflow", "a command"}
    of_workflow = rows["a workflow"]
    assert (float(of_workflow["wall_start_to_end_seconds"]), float(of_workflow["to_solution_seconds"])) == (0.75, 0.5)
    told_parts = {name: float(of_workflow[f"{name}_seconds"]) for name in ("inputs", "inference", "verification")}
    assert told_parts == pytest.approx({"inputs": 0.39, "inference": 0.11, "verification": 0.0})
    assert (of_workflow["from_a_cache"], rows["a command"]["from_a_cache"]) == ("inputs", "nothing")


def test_read_rate_is_beside_what_the_layers_were_read_from():
    text = solved(made_record(), 0.5)
    text["request"], text["problem"]["network"] = {"network": "layers"}, {"source": "text"}
    text["time_to_solution"] |= {"inputs": 0.0, "network": 0.25}
    rows = cells(table_of(section_of("times", [text, solved(made_record("formula"))]), "Time to solution by case"))
    rate = text["problem"]["edges"] / 0.25
    assert [(row["layers_from"], row["read_edges_per_second"]) for row in rows] == [
        ("text", str(rate)),
        ("formula", ""),
    ]


def test_a_page_of_own_networks_says_nothing_of_what_was_published():
    own = solved(made_record("mine-12", (0.5,), official=False, neurons=64, layers=12, inputs=1000), 2.0)
    section = section_of("times", [own])
    assert told(section).startswith("Inference is 25 % of the time to solution.")
    assert "published" not in told(section)
    with pytest.raises(StopIteration):
        table_of(section, "Published preparation")
    assert table_of(section_of("times", [solved(made_record())]), "Published preparation").rows


def test_a_ladder_has_the_slowest_first_and_the_latest_of_each_setting():
    steps = [((), 10.0), (("dead",), 2.0), (("dead", "inputs"), 0.5)]
    records = [made_record(f"rung-{k}", (seconds,), reductions) for k, (reductions, seconds) in enumerate(steps)]
    assert times.ladders(collected(records[:2]).own) == []  # two settings are no ladder
    again = made_record("rung-1", (4.0,), ("dead",)) | {"created": "2026-01-02T03:04:05Z"}
    figures = figures_of(section_of("times", [*reversed(records), again, made_record("other", (1.0,), layers=480)]))
    assert [name for name in figures if name.startswith("ladder")] == ["ladder-1"]
    labels = ["cpu, no reductions", "cpu, dead inputs", "cpu, dead inputs, identical inputs"]
    assert [row[:2] for row in figures["ladder-1"].rows] == list(zip(labels, (10.0, 4.0, 0.5), strict=True))
    with style():
        written = [text.get_text() for text in figures["ladder-1"].plot(False).axes[0].texts]
    assert written == ["10 s", "4 s, 2.5 times as fast", "0.5 s, 20 times as fast"]


def test_a_ladder_is_of_one_machine_and_says_what_times_include():
    reductions = ((), ("dead",), ("dead", "inputs"))
    here = [made_record(f"here-{len(on)}", (1.0 + len(on),), on) for on in reductions]
    there = [made_record(f"there-{len(on)}", (0.1,), on) for on in reductions]
    for record in there:
        record["environment"]["cores"] = 64
    here[0]["span"] = STREAMED
    ladders = {
        ladder.runs[0].record.environment.cores: ladder for ladder in times.ladders(collected([*here, *there]).own)
    }
    assert {cores: len(ladder.runs) for cores, ladder in ladders.items()} == {2: 3, 64: 3}
    assert all(run.case.startswith("here") for run in ladders[2].runs)
    assert sum(label.endswith(f": {STREAMED}") for label in ladders[2].labels) == 1
    assert not any(":" in label for label in ladders[64].labels)
    assert (ladders[2].span, ladders[64].span) == (None, LAST)
