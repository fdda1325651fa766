"""The page's section on schedules: what was measured is the records', what is predicted stands apart and says so."""

import pytest
from test_report import BASELINES, HOSTILE, collected, drawn, made_record, shown, typed

from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import cut
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.engines.taskgraph.simulation import simulate
from spdnn.report.common.drawing import save, style
from spdnn.report.schedules import section as timelines
from spdnn.report.schedules.section import values
from spdnn.runs.calibration import costs_of, decomposition_of, timeline_of
from spdnn.runs.records.published import read_baselines

HOW = "snakemake --configfile config/schedules.yaml"


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


def section(page):
    """The text of the section on schedules."""
    return page.text.split("One inference, cut in different ways")[1].split("Verification")[0]


def test_the_section_is_left_out_with_one_line_where_nothing_was_cut():
    page = shown([made_record()])
    assert 'id="schedules"' not in page.source
    assert page.text.count(HOW) == 1
    assert HOW not in shown(several()).text
    assert HOW not in shown().text


def test_numbers_are_the_records():
    records = several()
    page = shown(records, figures=True)
    for record in records:
        seconds, notes = sorted(record["inference_seconds"])[1], record["engine"]["notes"]
        assert {seconds, max(notes["memory_bytes"])} <= set(page.values)
        assert notes["why"] in section(page)
        assert record["case"] in section(page)
    labels = [attrs["aria-label"] for attrs in page.all("svg")]
    assert sum(label.startswith("Measured timelines of schedules, 1,024 neurons × 120 layers") for label in labels) == 1
    assert sum(label.startswith("Inference seconds over memory of a device") for label in labels) == 1


def test_predictions_stand_apart_and_name_what_calibrated_them():
    records = several()
    page = shown(records, figures=True)
    _, predicted = section(page).split("Predicted\n", 1)
    assert "Seconds in this part are those of a simulator, not of runs" in predicted
    assert "with the costs measured in case.resident-d1 alone" in predicted
    rows = values(collected(records))["groups"][0]["rows"]
    assert [row["schedule"] for row in rows] == ["resident", "stream", "graph", "pipeline"]
    assert rows[0]["predicted"] == pytest.approx(0.5)
    for row in rows:
        assert row["predicted"] in page.values
    assert any(attrs["aria-label"].startswith("Predicted timelines of schedules") for attrs in page.all("svg"))


def test_without_a_resident_run_nothing_is_predicted():
    page = shown(several()[1:])
    assert "Nothing is predicted here: that takes a run of the schedule resident on one device" in section(page)
    assert "Seconds in this part are those of a simulator" not in page.text


def test_a_record_without_a_timeline_is_in_the_table_alone():
    assert "case.resident-d1" in section(shown([scheduled(timeline=False)]))
    assert list(drawn("schedules", [scheduled(timeline=False)])) == ["schedules-1-predicted"]


def test_the_schedules_of_the_field_stand_beside_official_networks():
    text = section(shown(several(), published=True))
    assert "Measured by others on other machines (GeForce RTX 2080 Ti 11GB), with 60,000 inputs" in text
    table = text.split("Published by Lin and Huang, HPEC 2020")[1]
    assert [name in table for name in ("SNIG", "BF (SNIG authors' baseline)", "GPipe*")] == [True] * 3
    own = section(shown([scheduled(official=False, neurons=64, layers=12, inputs=1000)]))
    assert "Schedules of the field" not in own
    wide = [scheduled(neurons=65536, layers=480)]
    result = wide[0]["result"]
    result["survivors"] = [max(count, 1994) for count in result["survivors"]]
    result["categories"] = wide[0]["verdict"]["categories"] = wide[0]["verdict"]["expected"] = 1994
    wide[0]["verdict"]["values"]["checked"] = 1994
    assert "given up after 1,800" in section(shown(wide, published=True))
    group = values(collected(wide, read_baselines(BASELINES)))["groups"][0]
    assert [(row.system.split()[0], row.devices) for row in group["published"]][:5] == [
        ("SNIG", "1"), ("SNIG", "2"), ("SNIG", "3"), ("SNIG", "4"), ("BF", "1"),
    ]  # fmt: skip


def test_of_two_runs_of_one_setting_the_later_is_shown():
    later = scheduled("stream", 1, (0.25,), case="again")
    later["created"] = "2026-01-02T03:04:05Z"
    for records in ([*several(), later], [later, *several()]):
        page = shown(records)
        assert "1 earlier run of a setting" in section(page)
        assert "case.stream-d1" not in section(page)


@pytest.mark.parametrize(
    "notes",
    [
        {"stages": [[0, 2], [3, 4]]},
        {"stages": 7},
        {"schedule": "eager"},
        {"devices": 0},
        {"pipeline": 0},
        {"batch_inputs": None},
    ],
)
def test_notes_that_are_not_of_a_decomposition_are_left_alone(notes):
    record = scheduled(notes=notes)
    assert decomposition_of(typed(record)) is None
    assert 'id="schedules"' not in shown([record]).source


@pytest.mark.parametrize("timeline", [[], [[1, 2]], "x", [[0, "compute", "layer", 0, 0, 1, 2.0, 1.0]], None])
def test_a_timeline_that_is_not_one_is_not_drawn(timeline):
    record = scheduled(notes={"timeline": timeline})
    assert timeline_of(typed(record)) is None
    assert "case.resident-d1" in section(shown([record]))


def test_hostile_text_is_text():
    records = several()
    for record in records:
        record["engine"]["notes"]["why"] = HOSTILE
        record["engine"]["name"] = HOSTILE[:60]
        for entry in record["engine"]["notes"]["timeline"]:
            entry[1], entry[2] = HOSTILE, HOSTILE
    assert shown(records, figures=True).runs_nothing_else()


def test_bars_are_joined_where_nothing_between_could_be_seen():
    entries = [(0, "compute", "layer", k // 50, k, k + 1, k / 100, (k + 1) / 100) for k in range(100)]
    assert timelines._bars(entries, 0.001) == [("layer", 0, 0.0, 0.5), ("layer", 1, 0.5, 1.0)]
    apart = [(0, "compute", "layer", 0, 0, 1, 0.0, 0.4), (0, "compute", "layer", 0, 1, 2, 0.6, 1.0)]
    assert len(timelines._bars(apart, 0.001)) == 2
    with style():
        drawing = save(timelines.gantt([("none", [])], "empty", "nothing", ""), "schedules")
    assert drawing.svg.startswith("<svg")


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
