"""The page's section on schedules: what was measured is the records'."""

import pytest
from records import BASELINES, cells, collected, figures_of, made_record, table_of, texts, told, typed

from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import cut
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.engines.taskgraph.simulation import simulate
from spdnn.engines.taskgraph.timeline import Span
from spdnn.report.common.blocks import Part
from spdnn.report.common.drawing import save, style
from spdnn.report.schedules import PUBLISHED, gantt, joined, published_rows, section
from spdnn.runs.calibration import costs_of, expected
from spdnn.runs.records.published import read_baselines
from spdnn.runs.schedules import decomposition_of, timeline_of


def scheduled(schedule="resident", devices=1, seconds=(0.5, 0.5, 0.6), case=None, timeline=True, notes=None, **problem):
    """A record of the task graph; its timeline is the simulator's own, stretched to its fastest repeat."""
    record = made_record(case or f"case.{schedule}-d{devices}", seconds, **problem)
    count, layers = record["problem"]["input_count"], record["problem"]["layers"]
    sizes = RunSizes(count, 32, (1000,) * layers, 8192)
    made = cut(TaskgraphSettings(schedule, devices), sizes)
    told = {
        "schedule": schedule, "devices": devices, "pipeline": len(made.ranges), "batches": made.batches,
        "batch_inputs": made.batch, "stages": [list(stage) for stage in made.stages],
        "ranges": [list(one) for one in made.ranges], "buffers": made.buffers, "places": made.slots,
        "drawn": made.drawn, "device_memory_bytes": None, "why": f"{schedule} was asked for",
        "memory_bytes": [made.memory(sizes, device) for device in range(made.devices)],
    }  # fmt: skip
    record["engine"] = {"name": "taskgraph", "notes": {"tile": 32, **told}}
    if timeline:
        costs, cores = costs_of(typed({**record, "engine": {"name": "taskgraph", "notes": {"tile": 32}}}), devices)
        found = simulate(made, costs, cores)
        factor = min(seconds) / found.seconds
        spans = [[*span.as_list()[:6], span.begin * factor, span.end * factor] for span in found.timeline]
        record["engine"]["notes"] |= {"timeline": spans, "timeline_tasks": len(spans)}
    record["engine"]["notes"] |= notes or {}
    return record


def several():
    return [
        scheduled(),
        scheduled("stream", 1, (0.52, 0.5, 0.51)),
        scheduled("graph", 2, (0.55, 0.54, 0.53)),
        scheduled("pipeline", 2, (0.7, 0.75, 0.72)),
    ]


def of(records, baselines=()):
    """The section on these records."""
    return section(collected(records, baselines))


def parts(shown):
    """The blocks of the parts of the first network, by their headings."""
    return {part.heading: part.blocks for part in next(shown.every(Part)).blocks if isinstance(part, Part)}


def test_numbers_are_the_records():
    records = several()
    records[2]["engine"]["notes"]["memory_bytes"][1] *= 2
    figures = figures_of(of(records))
    lines = cells(table_of(of(records), "Schedules on"))
    for record, line, point in zip(records, lines, figures["schedules-1-memory"].rows, strict=True):
        low, seconds, high = sorted(record["inference_seconds"])
        notes, problem = record["engine"]["notes"], record["problem"]
        memory, rate = max(notes["memory_bytes"]), problem["edges"] * problem["input_count"] / seconds
        cut = [notes["schedule"], notes["devices"], notes["batches"], notes["buffers"] or ""]
        values = [value for key, value in line.items() if not key.endswith("_below")]
        assert values[1:9] == list(map(str, [*cut, memory, "", seconds, rate]))
        assert line["why_it_was_cut_so"] == notes["why"]
        assert point[1:5] == (notes["schedule"], notes["devices"], memory, seconds)
        assert low <= point[5] <= seconds <= point[6] <= high
    entries = [entry for record in records for entry in record["engine"]["notes"]["timeline"]]
    assert [list(entry) for _, *entry in figures["schedules-1"].rows] == entries
    assert figures["schedules-1-memory"].rows[-1][0] == "pipeline, 2 devices, pipeline of 2, 8 batches"
    with style():
        assert all(save(figures[name], "").svg for name in ("schedules-1", "schedules-1-memory"))


def test_a_record_without_a_timeline_is_in_the_tables_alone():
    assert list(figures_of(of([scheduled(timeline=False)]))) == []
    assert of([made_record()]) is None


def test_the_schedules_of_the_field_stand_beside_official_networks():
    baselines = read_baselines(BASELINES)
    text, table = parts(of(several(), baselines))["Schedules of the field on the same network, published"]
    assert "other machines (GeForce RTX 2080 Ti 11GB), with" in text.text
    assert table.caption == "Published by Lin and Huang, HPEC 2020, Table II"
    assert [(row.system.split()[0], row.devices) for row in table.rows] == [
        (name, str(count)) for name, least in (("SNIG", 1), ("BF", 1), ("GPipe*", 2)) for count in range(least, 5)
    ]
    assert list(texts(table)[0].values())[2:5] == ["1", "0.799", "0.2953"]
    own = scheduled(official=False, neurons=64, layers=12, inputs=1000)
    assert published_rows(baselines, typed(own).problem) == []
    deep = published_rows(baselines, typed(scheduled(neurons=65536, layers=480)).problem)
    assert "given up after 1,800" in [row["Time, seconds"] for row in texts(PUBLISHED.of(deep))]


def test_of_two_runs_of_one_setting_the_later_is_shown():
    later = scheduled("stream", 1, (0.25,), case="again")
    later["created"] = "2026-01-02T03:04:05Z"
    for records in ([*several(), later], [later, *several()]):
        assert "1 earlier run of a setting that was run again is not in this part." in told(of(records))
        lines = cells(table_of(of(records), "Schedules on"))
        assert [line["inference_seconds"] for line in lines if line["schedule"] == "stream"] == ["0.25"]


@pytest.mark.parametrize(
    "notes",
    [{"stages": [[0, 2], [3, 4]]}, {"stages": 7}, {"schedule": "eager"}, {"devices": 0}, {"pipeline": 0},
     {"batch_inputs": None}],
)  # fmt: skip
def test_notes_that_are_not_of_a_decomposition_are_left_alone(notes):
    record = scheduled(notes=notes)
    assert decomposition_of(typed(record)) is None
    assert of([record]) is None


@pytest.mark.parametrize("timeline", [[], [[1, 2]], "x", [[0, "compute", "layer", 0, 0, 1, 2.0, 1.0]], None])
def test_a_timeline_that_is_not_one_is_not_drawn(timeline):
    record = scheduled(notes={"timeline": timeline})
    assert timeline_of(typed(record)) is None
    assert "schedules-1" not in figures_of(of([record]))


def test_bars_are_joined_where_nothing_between_could_be_seen():
    def spans(*entries):
        return [Span(0, "compute", "layer", batch, 0, 1, begin, end) for batch, begin, end in entries]

    assert joined(spans(*((k // 50, k / 100, (k + 1) / 100) for k in range(100))), 0.001) == [
        ("layer", 0, 0.0, 0.5), ("layer", 1, 0.5, 1.0),
    ]  # fmt: skip
    assert len(joined(spans((0, 0.0, 0.4), (0, 0.6, 1.0)), 0.001)) == 2
    with style():
        assert save(gantt([("none", [])], "empty", "nothing", ""), "schedules").svg.startswith("<svg")


def test_a_record_of_the_task_graph_calibrates_stage_by_stage():
    """Its own decomposition, predicted with its own costs, takes the time that was measured, task by task."""
    record = scheduled(seconds=(0.5,))
    entries = record["engine"]["notes"]["timeline"]
    layers = [entry for entry in entries if entry[2] == "layer"]
    first, last = layers[0], layers[-1]  # a part of the first one's time is taken by the last
    part = (first[7] - first[6]) / 2
    for entry in entries:
        for place in (6, 7):
            entry[place] -= part if entry[place] > first[6] else 0.0
    last[7] += part
    entries[-1][6:] = [last[7], last[7]]
    costs, cores = costs_of(typed(record))
    found = simulate(decomposition_of(typed(record)), costs, cores)
    assert found.seconds == pytest.approx(0.5)
    told = {(span.first, span.last): span.end - span.begin for span in found.timeline if span.kind == "layer"}
    turn = costs.seconds_per_task
    assert told[first[4], first[5]] == pytest.approx(part + turn, rel=1e-6)
    assert told[last[4], last[5]] == pytest.approx(last[7] - last[6] + turn, rel=1e-6)
    assert costs.work.sizes(costs.device).inputs == 60_000


def test_another_schedule_is_predicted_by_the_simulator():
    base, *others = map(typed, several())
    for record in others:
        costs, cores = costs_of(base, record.engine.notes.devices)
        assert expected(base, record)[0] == simulate(decomposition_of(record), costs, cores).seconds


def test_gaps_that_are_closed_have_their_time():
    record = scheduled(seconds=(0.5,))
    entries = record["engine"]["notes"]["timeline"]
    for entry in entries:
        entry[6], entry[7] = 0.9 * entry[6], 0.9 * entry[7]
    compact = next(entry for entry in entries if entry[2] == "compact")
    for entry in entries[entries.index(compact) + 1 :]:
        entry[6], entry[7] = entry[6] + 0.05, entry[7] + 0.05
    compact[7] += 0.05
    costs, cores = costs_of(typed(record))
    assert costs.compact_bytes_per_second is not None
    found = simulate(decomposition_of(typed(record)), costs, cores)
    assert found.seconds == pytest.approx(0.5)
    assert sum(span.end - span.begin for span in found.timeline if span.kind == "compact") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("used", "waiting"), [(0.8, 0.25), (1.0, 0.0), (1.1, 0.0), ("x", 0.0), (None, 0.0), (-1.0, 0.0)]
)
def test_processor_time_tells_how_much_threads_waited(used, waiting):
    """Two threads for half a second that used 0.8 s of processors: a thread less would be worth more than half."""
    record = scheduled(seconds=(0.5,), notes={"processor_seconds": used})
    assert costs_of(typed(record), 2)[0].waiting == pytest.approx(waiting)
