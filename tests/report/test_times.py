"""The page's section on where the time goes: every part is what the record's own numbers come to, none is guessed."""

import re
import statistics

import pytest
from test_report import HOSTILE, collected, data, drawn, made_record, shown, solved
from test_scaling import on
from test_schedules import scheduled

from spdnn.report.common.drawing import MOST_BARS
from spdnn.report.times import values as times

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


def figure(records, name):
    return drawn("times", records).get(name)


def lengths(drawing, number):
    """How long the parts of a record's bar are in the SVG."""
    group = re.search(rf'<g id="{drawing.name}-record-{number}">.*?</g>', drawing.svg, re.DOTALL).group()
    found = []
    for path in re.findall(r' d="([^"]*)"', group):
        across = [float(x) for x in re.findall(r"[ML] (-?[\d.]+) ", path)]
        found.append(max(across) - min(across))
    return found


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
def test_a_timeline_is_told_apart_by_device(entries, ticks, devices):
    record, expected = timed(entries, ticks, devices), by_ticks(entries, ticks, devices)
    found = parts(record)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.whole == ticks * TICK * devices == sum(expected.values()) - expected["hidden"]
    values = set(shown([record]).values)
    assert {*expected.values(), found.whole} <= values
    assert {seconds / found.whole for seconds in expected.values()} <= values


def test_ranks_are_told_apart_by_their_clocks():
    record = on(4, (0.25, 0.5, 0.75))
    ranks = record["distribution"]["per_rank"]
    whole, wait, copies = (
        sum(sum(rank[f"{name}_seconds"]) for rank in ranks) for name in ("inference", "waiting", "communication")
    )
    found = parts(record)
    assert (found.whole, found.wait, found.copy, found.kernel) == (whole, wait, copies, whole - wait - copies)
    assert (found.unassigned, found.hidden) == (0, None)
    page = shown([record])
    assert {whole, wait / whole, copies / whole, (whole - wait - copies) / whole} <= set(page.values)
    assert "Clocks of the ranks, 3 repeats" in page.text
    record["span"] = STREAMED  # a rank that reads weights does not tell when
    found = parts(record)
    assert (found.kernel, found.unassigned, found.copy) == (None, whole - wait - copies, copies)


def test_a_gpu_tells_its_own_seconds_of_the_last_repeat():
    page = shown([on_gpu()])
    found = parts(on_gpu())
    assert (found.whole, found.kernel, found.unassigned) == (0.375, 0.25, 0.125)
    assert (found.copy, found.wait, found.hidden) == (None, None, None)
    assert {0.25 / 0.375, 0.125 / 0.375, 0.375, 0.5} <= set(page.values)  # 0.5: the copies while it was read
    assert "Of it, copies to a GPU" in page.text
    assert "Of it, copies to a GPU" not in shown([made_record()]).text
    assert times.values(collected([on_gpu(copied=2.5)]))["rows"][0]["uploaded"] is None


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
def test_what_a_record_does_not_tell_is_not_guessed(record):
    assert parts(record) is None
    page = shown([record])
    assert "Parts of inference from" not in page.text
    assert 'id="times-inference"' not in page.source
    assert figure([record], "times-parts") is None


def test_copies_inside_captured_graphs_are_not_told_apart():
    entries = [(0, "compute", 0, 10), (0, "compute", 12, 20)]
    captured = timed(entries, 21, span=STREAMED, captured=True)
    found = parts(captured)
    assert (found.kernel, found.unassigned, found.wait, found.hidden) == (None, 19 * TICK, 2 * TICK, None)
    stay = timed(entries, 21, captured=True)  # so nothing is copied
    assert parts(stay).kernel == 18 * TICK
    assert parts(timed(entries, 21, span=STREAMED, captured=False)).kernel == 18 * TICK


def test_a_timeline_of_joined_tasks_says_at_most():
    whole = shown([timed(SIMPLE, 20)])
    assert "kernel at most" not in whole.text
    joined = shown([timed(SIMPLE, 20, timeline_tasks=3)], figures=True)
    assert joined.text.count("kernel at most") == 2  # in the figure and in the table
    assert "gaps between them count as busy" in joined.text
    assert ">kernel at most</text>" in joined.source


def test_runs_that_tell_nothing_are_counted():
    text = shown([timed(SIMPLE, 20), made_record("a"), {**made_record("b"), "span": STREAMED}]).text
    assert "The records of 2 other runs do not split inference into parts; where weights were streamed" in text
    text = shown([timed(SIMPLE, 20), made_record("a")]).text
    assert "The records of 1 other run do not split inference into parts." in text
    for term in ("Clocks of the ranks", "Events of the GPU", "Kernel at most"):
        assert term not in text


def test_the_whole_is_read_prepare_and_inference():
    records = [made_record(f"case-{place}", (0.5 * place, 0.25 * place, place)) for place in (1, 2, 3)]
    drawing = figure(records, "times-whole")
    rows, first = data(drawing), lengths(drawing, 0)[0]
    for place, record in enumerate(records):
        seconds = [statistics.median(record[f"{part}_seconds"]) for part in ("read", "prepare", "inference")]
        assert [float(row["seconds"]) for row in rows[3 * place : 3 * place + 3]] == seconds
        assert lengths(drawing, place) == pytest.approx([second / 0.5 * first for second in seconds], abs=1e-3)
    assert [row["part"] for row in rows[:3]] == ["read", "prepare", "inference"]
    assert ">seconds</text>" in drawing.svg
    assert ">1.06 s<" in drawing.svg


def test_wholes_that_differ_very_much_are_each_their_own():
    records = [made_record("short", (0.25,)), made_record("long", (100.0,))]
    drawing = figure(records, "times-whole")
    assert "each bar is 100 % of its own case" in drawing.caption
    assert ">% of the case's own read + prepare + inference</text>" in drawing.svg
    # by case, so "long" is first
    assert sum(lengths(drawing, 0)) == pytest.approx(sum(lengths(drawing, 1)), abs=1e-3)
    assert lengths(drawing, 1)[2] / sum(lengths(drawing, 1)) == pytest.approx(0.25 / 0.8125, abs=1e-3)
    assert [float(row["seconds"]) for row in data(drawing)] == [0.5, 0.0625, 100.0, 0.5, 0.0625, 0.25]


def test_bars_of_inference_are_as_long_as_the_parts():
    records = [timed(OVERLAP, 50, 2, "a"), on(2, (0.25, 0.5), case="b"), on_gpu(case="c")]
    drawing, page = figure(records, "times-parts"), shown(records)
    rows, expected = data(drawing), by_ticks(OVERLAP, 50, 2)
    assert {row["part"]: float(row["seconds"]) for row in rows if row["case"] == "a"} == {
        "kernel": expected["kernel"], "copy": expected["copy"], "wait": expected["wait"],
        "unassigned": expected["unassigned"], "copies hidden behind a kernel": expected["hidden"],
    }  # fmt: skip
    for place, case in enumerate("abc"):
        own = [row for row in rows if row["case"] == case and "hidden" not in row["part"]]
        assert sum(float(row["% of the whole"]) for row in own) == pytest.approx(100)
        drawn, expected_shares = lengths(drawing, place), [float(row["% of the whole"]) for row in own]
        assert [100 * one / sum(drawn) for one in drawn] == pytest.approx(
            [share for share in expected_shares if share], abs=0.01
        )
        assert drawing.svg.count(f'id="times-parts-record-{place}"') == 1
    assert {float(row["seconds"]) for row in rows} <= set(page.values)  # what a figure shows, the table has
    assert expected["hidden"] == 16 * TICK  # of two devices' 50 ticks each
    assert ">16.0 % copies, hidden<" in drawing.svg


def test_a_figure_has_the_fastest_of_each_network_and_the_table_all():
    """Many runs of one network leave room for the others; of one network, the slowest are left out."""
    records = [on(2, (0.25 + place / 64,), case=f"case-{place:02}") for place in range(MOST_BARS + 2)]
    records.append(on(2, (9.0,), case="other", layers=480))
    figures, page = drawn("times", records), shown(records)
    for name in ("times-whole", "times-parts"):
        drawing = figures[name]
        fastest = {f"case-{place:02}" for place in range(MOST_BARS - 1)}
        assert {row["case"] for row in data(drawing)} == {*fastest, "other"}
        assert f" {MOST_BARS} of {len(records)} cases, the fastest of each network before" in drawing.caption
        assert len(re.findall(rf'id="{name}-record-\d+"', drawing.svg)) == MOST_BARS
    body = page.source[page.source.index('aria-label="Parts of inference by case"') :]
    assert all(f">{record['case']}</th>" in body for record in records)


def test_hostile_names_stay_text():
    record = timed(OVERLAP, 50, 2, HOSTILE)
    record["engine"]["name"] = HOSTILE[:60]
    record["engine"]["notes"]["why"] = HOSTILE
    assert shown([record, on_gpu(case=HOSTILE + "2")], figures=True).runs_nothing_else()
    assert "<script>alert(" in figure([record], "times-parts").csv


def test_bars_are_the_parts_of_the_time_to_solution_where_records_have_it():
    record = solved(made_record(), 2.5)
    rows = {row["part"]: float(row["seconds"]) for row in data(figure([record, made_record("b")], "times-whole"))}
    assert rows["inference"] == record["time_to_solution"]["inference"] == 0.11
    assert sum(rows.values()) == pytest.approx(2.5)
    assert "Inference is 4.4 %" in shown([record]).text


def test_solutions_of_a_gpu_are_in_the_table_of_the_others():
    text = shown([solved(made_record(), 2.5), solved(on_gpu(), 3.5), on_gpu(case="without")]).text
    table = text[text.index("time to solution and its parts") :].partition("Published")[0]
    assert re.findall(r"120 (cpu|cuda.*?)\d\.", table) == ["cpu", "cuda gpu"]


def test_a_page_of_own_networks_says_nothing_of_what_was_published():
    own = solved(made_record("mine-12", (0.5,), official=False, neurons=64, layers=12, inputs=1000), 2.0)
    challenge = shown([solved(made_record(), 2.0)]).text
    text = shown([own]).text
    assert "Inference is 25 % of the time to solution." in text
    for told in ("published rates leave the rest out", "Published preparation"):
        assert told in challenge
        assert told not in text
