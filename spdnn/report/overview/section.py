"""The first screen: what ran and how it ended, how fast, against whom, and every network in one figure.

Runs are in two divisions, as in MLPerf's rules. Same work: the official inputs, and only dead inputs left out, which
the fastest exact published systems leave out as well. Work avoided, exactly: with more reductions.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from spdnn.report.calls.section import values as calls
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, line, logarithmic, name_rows, set_ticks
from spdnn.report.common.run_rows import RunRow, group_by
from spdnn.report.networks.section import NAMES, PUBLISHED, SERIES, hardware, machines, series, twelve
from spdnn.runs.records.published import Ratio

MOST_SENTENCES = 4  # of networks that were called
PRESET = "config/like-for-like.yaml"
WIDEST_LEGEND = 3  # entries in one line of it
# (name of a series, label, mark, index into "colorblind"); ours are filled, published ones hollow, with their hardware.
MARKS = (
    ("reduced", "ours, work avoided exactly", "*", 0),
    ("like", "ours, same work", "D", 1),
    ("plain", "ours, no reductions", "P", 4),
    ("one", "best published, exact, {}", "o", 2),
    ("any", "best published, exact, {}", "^", 3),
    ("lossy", "best published, lossy, {}", "v", 5),
)


def values(collection: Collection) -> dict | None:
    """What the first screen prints; None where nothing was timed but operations.

    Returns:
        what: what ran; title: the page's, where the calls of one network are all that was timed; speed: sentences, the
        first is the most important; cards: {of: a network, numbers: (label, number, unit, what it is)} of one network;
        decided: sentences on what the configuration left to the machine;
        rows: of the twelve networks that were run, as `twelve` has them; machines, hardware: what ours and the best
        published ran on; busy, older: how many of `runs` are;
        unit: what is counted.
    """
    own = collection.own
    networks = (calls(collection) or {"networks": []})["networks"]
    if not own:
        return _calls(networks) if networks else None
    rows = [row for row in twelve(collection) if any(row[name] for name in SERIES)]
    return {
        "what": _what([run.name for run in own], {run.official_size for run in own if run.official_size}),
        "title": None,
        "speed": (_comparison_texts(rows) or _fastest(rows)) if rows else _own(own, networks),
        "cards": _cards(own, rows, networks),
        "decided": collection.decided,
        "rows": rows,
        "machines": machines(rows),
        "hardware": {name: hardware(rows, name) for name in PUBLISHED},
        "busy": sum(bool(run.busy) for run in own),
        "older": sum(run.older for run in own),
        "runs": len(own),
        "unit": "run",
    }


def _calls(networks: Sequence[dict]) -> dict:
    """As `values`, of calls alone."""
    first = networks[0]
    alone = len(networks) == 1
    return {
        "what": _what([network["name"] for network in networks]),
        "title": f"{first['name']}: {first['short']}" if alone else None,
        "speed": [] if alone else [f"{network['name']}: {network['short']}." for network in networks[:MOST_SENTENCES]],
        "cards": {"of": first["name"], "numbers": _latency(first)},
        "decided": [],
        "rows": [],
        "machines": "",
        "hardware": {},
        "busy": sum(bool(entry["busy"]) for network in networks for entry in network["batches"]),
        "older": 0,
        "runs": sum(len(network["batches"]) for network in networks),
        "unit": "batch size",
    }


def _what(every: Sequence[str], official: Iterable[tuple[int, int]] = ()) -> str:
    """The networks that ran, by their names; `official`: the sizes of those of the challenge."""
    names = list(dict.fromkeys(every))
    if len(names) <= 2:
        return " and ".join(names)
    return (
        "The twelve networks of the challenge" if len(set(official)) == len(names) == 12 else f"{len(names)} networks"
    )


def _comparison_texts(rows: Sequence[dict]) -> list[str]:
    """How our rates compare with published ones, by division; empty where no run is on the official inputs."""
    same, exact, lossy = (
        {row["key"]: row["times"][pair] for row in rows if pair in row["times"]}
        for pair in (("like", "one"), ("reduced", "one"), ("reduced", "lossy"))
    )
    ours, best, sentences = _cores(rows), f"the best published exact result on {hardware(rows, 'one')}", []
    if same:
        once = sum(row["like"].repeats == 1 for row in rows if row["key"] in same)
        count = "" if len(same) == 1 else "each " if once == len(same) else f"{once} of {len(same)} "
        sentences.append(
            f"Same work: {ours} {'is' if ours.startswith('one ') else 'are'} {_against(same, best)}"
            f"{f'; {count}measured once' if once else ''}."
        )
    if exact:
        again = _included(same) == _included(exact) and same.keys() == exact.keys()
        against = _against(exact, "that", False) if again else _against(exact, best)
        beside = f", {_against(lossy, 'the best lossy result')}" if lossy else ""
        sentences.append(f"Work avoided, exactly: {against}{beside}.")
    return sentences


def _against(ratios: Mapping[str, Ratio], best: str, say: bool = True) -> str:
    """How many times as fast as the published `best`, or slower, in the geometric mean of networks; and, unless a
    sentence before said it, what its times include."""
    times = [ratio.times for ratio in ratios.values()]
    slower = statistics.geometric_mean(times) < 1
    mean = _mean([1 / each for each in times] if slower else times)
    return f"{mean} times {'slower than' if slower else 'as fast as'} {best}{_included(ratios) if say else ''}"


def _included(ratios: Mapping[str, Ratio]) -> str:
    """What published times include where ours include something else, in brackets; empty where all include the same."""
    spans = Counter(ratio.theirs for ratio in ratios.values() if ratio.theirs).most_common()
    texts = [f"{span} in {count} of {len(ratios)}" if len(ratios) > 1 else span for span, count in spans]
    return f" (their time: {', '.join(texts)})" if texts else ""


def _mean(numbers: Sequence[float]) -> str:
    """The geometric mean, and the range of several."""
    figures = statistics.geometric_mean(numbers), min(numbers), max(numbers)
    mean, low, high = (words.significant(number, 2) for number in figures)
    return mean if low == high else f"{mean} (geometric mean, {low} to {high})"


def _cores(rows: Sequence[dict]) -> str:
    """The hardware of our runs in short: "2 CPU cores", or the GPU."""
    runs = [row[name] for row in rows for name in SERIES if row[name]]
    gpus = sorted({words.printable(run.record.environment.gpu) for run in runs if run.record.environment.gpu})
    if gpus:
        return f"one {words.listed(gpus, 2)}"
    counts = [min(run.record.threads * run.record.ranks, run.record.environment.cores) for run in runs]
    low, high = min(counts), max(counts)
    return "one CPU core" if high == 1 else f"{high if low == high else f'{low} to {high}'} CPU cores"


def _fastest(rows: Sequence[dict]) -> list[str]:
    """The highest rate of one of the twelve, compared with nothing."""
    run, name = max(
        ((row[name], name) for row in rows for name in SERIES if row[name]), key=lambda pair: pair[0].rate.median
    )
    return [
        f"Fastest: {words.significant(run.rate.median / 1e12, 3)} TeraEdges/s on {run.name} ({NAMES[name]}"
        f"{_once(run)}). Inputs: {run.inputs}, not the challenge's, so no rate is compared with published ones "
        f"({PRESET} runs the official inputs)."
    ]


def _own(runs: Sequence[RunRow], networks: Sequence[dict]) -> list[str]:
    """Networks of one's own: a call beside other libraries, or inputs a second of the fastest run."""
    if networks:
        return [f"{result}." for result in networks[0]["results"]]
    run = max(runs, key=lambda run: run.inputs_per_second)
    rate = words.significant(run.inputs_per_second, 3)
    return [f"{rate} inputs a second through {run.name}, {run.problem.input_count:,} in a batch{_once(run)}."]


def _once(run: RunRow) -> str:
    return ", measured once" if run.repeats == 1 else ""


def _cards(runs: Sequence[RunRow], rows: Sequence[dict], networks: Sequence[dict]) -> dict:
    """The numbers of one network: the largest of the twelve, or the one of most edges."""
    if rows:
        row = max(rows, key=lambda row: row["edges"])
        numbers = [
            (NAMES[name], words.significant(run.rate.median / 1e12, 3), "TeraEdges/s", _seconds(run))
            for name in ("like", "reduced", "plain") if (run := row[name])
        ]  # fmt: skip
        members = [row[name] for name in SERIES if row[name]][:1]  # of whose run memory and the whole time are
    else:
        members = max(group_by(runs, lambda run: run.problem_key).values(), key=lambda some: some[0].problem.edges)
        best = min(members, key=lambda run: run.inference_seconds)
        per_input = words.time(best.inference_seconds / best.problem.input_count).split()
        numbers = [
            ("throughput", words.significant(best.inputs_per_second, 3), "inputs/s", _seconds(best)),
            ("time for an input", *per_input, f"in a batch of {best.problem.input_count:,}"),
        ]
        if networks:
            numbers = _latency(networks[0])
        labelled = [run.record.accuracy.top1 / run.problem.input_count for run in members if run.record.accuracy]
        if labelled:
            share = words.significant(100 * labelled[-1], 3)
            numbers.insert(0, ("accuracy", share, "%", f"top-1 of {best.problem.input_count:,} inputs"))
    if rows and (solved := [run for run in members if run.solution]):
        best = min(solved, key=lambda run: run.solution.seconds)
        duration = words.time(best.solution.seconds).split()
        numbers.append(("time to solution", *duration, f"verified; {_division(best)}"))
    first = members[0]
    what = _division(first) if rows else "of the process"
    numbers.append(("peak memory", *words.size(first.record.peak_memory_bytes).split(), what))
    return {"of": members[0].name, "numbers": numbers[:4]}


def _latency(network: dict) -> list[tuple[str, str, str, str]]:
    """The cards of a network's calls."""
    few, many = (network["batches"][place] for place in (0, -1))
    rate, duration = many["rows"][0]["rate"], words.time(few["rows"][0]["seconds"]).split()
    calls_of = [f"a call with {words.plural(entry['batch'], 'input')}" for entry in (few, many)]
    return [("latency", *duration, calls_of[0]), ("throughput", words.significant(rate, 3), "inputs/s", calls_of[1])]


def _division(run: RunRow) -> str:
    return NAMES[series(run)].partition(",")[0]


def _seconds(run: RunRow) -> str:
    computed = ""
    if run.official_size and series(run) == "reduced":
        computed = f"; really computed: {words.significant(run.computed_rate / 1e12, 2)} TeraEdges/s"
    return f"{words.time(run.inference_seconds)}{_once(run)}{computed}"


def figures(values: dict) -> Iterator[Figure]:
    """One row for each of the twelve networks that was run; nothing without one."""
    rows = values["rows"]
    if not rows:
        return
    labels = {name: label.format(values["hardware"].get(name)) for name, label, _, _ in MARKS}
    points = [point for row in rows for point in _points(row, labels)]
    once = any(point[1] in SERIES and point[7] is None for point in points)
    yield Figure(
        "overview",
        "Every network: TeraEdges/s of ours and of the best published",
        "Networks by neurons × layers. TeraEdges/s: inputs × nonzeros ÷ inference seconds, skipped work included. "
        f"Ours on {values['machines']}: medians, 95 % intervals{'; 1×: measured once' if once else ''}. "
        + (
            "Pale: other inputs than the challenge's, so no published rates."
            if not all(point[5] for point in points)
            else "Same work: only dead inputs left out, as the fastest exact published systems do. "
            "What published times include is in the table of these networks."
        ),
        _plot(values, labels, points),
        ("network", "who", "TeraEdges/s", "low", "high", "label", "comparable"),
        [
            (row["key"], label, rate / 1e12, *(end / 1e12 for end in ends or (rate, rate)), text, same)
            for row, _, label, rate, text, same, _, ends in points
        ],
        {number: text for *_, text, _, number, _ in points if number is not None},
        _plot(values, labels, points, True),
    )


def _points(row: dict, labels: Mapping[str, str]) -> Iterator[tuple]:
    """(row, series, label, rate, text, whether on the challenge's inputs, number of a record, interval or None)."""
    for name, label in labels.items():
        if name in SERIES and (run := row[name]):
            rate = run.rate.median
            text = f"{run.case}: {rate / 1e12:.4g} TeraEdges/s"
            ends = (run.rate.low, run.rate.high) if run.repeats > 1 else None
            yield row, name, label, rate, text, run.comparable, run.number, ends
        elif (
            name not in SERIES
            and (best := row["best"][name])
            and any(row[own] and row[own].comparable for own in SERIES)
        ):
            yield row, name, label, best.edges_per_second, row["label"][name], True, None, None


def _plot(values: dict, labels: Mapping[str, str], points: Sequence[tuple], narrow: bool = False):
    rows, machines = values["rows"], values["machines"]
    names = {name for _, name, *_ in points}
    columns = 1 if narrow else (len(names) if len(names) <= WIDEST_LEGEND else 3)
    lines = math.ceil(len(names) / columns) - 1
    plot, axes = canvas(1.2 + 0.24 * len(rows) + (0.2 if narrow else 0.3) * lines, narrow=narrow)
    keys, palette = [row["key"] for row in rows], colours()
    marks = {name: (mark, palette[hue]) for name, _, mark, hue in MARKS}
    for row in rows:
        rates = [rate / 1e12 for point, _, _, rate, *_ in points if point is row]
        axes.plot([min(rates), max(rates)], [keys.index(row["key"])] * 2, color="#9aa1ab", linewidth=1, zorder=1)
    for row, name, _, rate, _, same, number, ends in points:
        mark, colour = marks[name]
        ours = name in SERIES
        axes.scatter(
            [rate / 1e12], [keys.index(row["key"])], marker=mark, s={"*": 120, "P": 60}.get(mark, 46),
            facecolors=colour if ours else "#ffffff", edgecolors=INK if ours else colour,
            linewidths=0.6 if ours else 1.6, alpha=None if same else 0.45, zorder=3,
            gid=None if number is None else f"{RECORD}{number}",
        )  # fmt: skip
        if ends:
            axes.plot([end / 1e12 for end in ends], [keys.index(row["key"])] * 2, color=INK, linewidth=2.2, zorder=2)
        elif ours:
            at = rate / 1e12, keys.index(row["key"])
            axes.annotate("1×", at, (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)
    logarithmic(axes, "x")
    set_ticks(axes.xaxis, [rate / 1e12 for _, _, _, rate, *_ in points])
    axes.set_xlabel(f"TeraEdges/s{chr(10) if narrow else '; '}ours: {words.printable(machines, 60)}", loc="left")
    name_rows(plot, axes, [f"{row['neurons']:,} × {row['layers']:,}" for row in rows])
    handles = [
        line(
            labels[name].replace("best ", "") if narrow else labels[name], linestyle="", marker=mark, markersize=8,
            markeredgecolor=INK if name in SERIES else palette[hue],
            markerfacecolor=palette[hue] if name in SERIES else "#ffffff",
        )
        for name, _, mark, hue in MARKS if name in names
    ]  # fmt: skip
    plot.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                columnspacing=0.8, handletextpad=0.1, fontsize=8 if narrow else 10)  # fmt: skip
    return plot
