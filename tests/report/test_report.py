"""The page: its numbers are the records', nothing unverified has one, and nothing in it is code or a request."""

import base64
import contextlib
import csv
import functools
import hashlib
import io
import json
import re
import tempfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest

from spdnn.cli import main
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.validation import builtins
from spdnn.formats.radixnet import RadixNet
from spdnn.report import page as pages
from spdnn.report import rendering as report
from spdnn.report.cases.values import headline
from spdnn.report.common import words
from spdnn.report.common.collection import Part, collect
from spdnn.report.common.drawing import save, style
from spdnn.report.sections import SECTIONS
from spdnn.report.times.figures import survivors
from spdnn.report.times.ladders import Curve, curves, ladders
from spdnn.runs.records.published import SPANS, read_baselines
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.time_to_solution import solution
from spdnn.runs.records.verdict import Verdict, run_digest

BASELINES = Path(__file__).parents[2] / "config" / "baselines.csv"
SHA = "0123456789abcdef" * 4
HOSTILE = """<script>alert("x")</script><img src='http://evil.example/x.png'>&amp; $\\frac{"""


def made_verdict(inputs=60_000, categories=1812, passed=True, kind="official", problem=None):
    return {
        "schema": "spdnn-verdict",
        "version": 2,
        "passed": passed,
        "truth": {"kind": kind, "source": f"{kind} truth", "inputs": inputs, "checked": inputs, "seed": None},
        "categories": categories,
        "expected": categories if passed else categories + 7,
        "missing": {"count": 0 if passed else 7, "first": [] if passed else [3]},
        "unexpected": {"count": 0, "first": []},
        "borderline": {"count": 0, "first": []},
        "values": {
            "rule": "every value is 32",
            "checked": categories,
            "every": 0,
            "failures": 0,
            "first": [],
            "largest_error": 0.0,
        },
        "reasons": [] if passed else ["7 categories of the ground truth are missing, the first is 3"],
        "judged": judged(problem) if problem else None,
    }


def judged(problem, digest=SHA, sha256=SHA):
    names = ("network_identity", "layers", "edges", "inputs_sha256")
    return run_digest(*(problem[name] for name in names), digest, sha256)


def made_problem(neurons=1024, layers=120, official=True, inputs=60_000, source="mnist"):
    bias = float(np.float32(challenge.BIAS.get(neurons, -0.3)))
    return {
        "official": f"{neurons}-{layers}" if official else None,
        "network": {
            "source": "radixnet",
            "neurons": neurons,
            "layers": layers,
            "bias": bias,
            "seed": 5489,
            "ymax": 32.0,
        },
        "network_identity": SHA,
        "neurons": neurons,
        "layers": layers,
        "edges": 32 * neurons * layers,
        "inputs": {"source": source, "count": inputs},
        "inputs_sha256": challenge.INPUT_SHA256[neurons] if official else SHA,
        "input_count": inputs,
    }


def made_record(case="1024-120.mnist.cpu.all.t2", seconds=(0.11, 0.1, 0.12), reductions=("dead",), **problem):
    problem = made_problem(**problem)
    count, layers = problem["input_count"], problem["layers"]
    survivors = [max(1812, int(count * 0.7**layer)) if count > 1812 else count // 2 for layer in range(1, layers + 1)]
    categories = survivors[-1]
    return {
        "schema": "spdnn-record",
        "version": 2,
        "case": case,
        "created": "2025-01-02T03:04:05Z",
        "request": {"network": "net.safetensors", "layers": layers, "inputs": "inputs.safetensors"},
        "configuration": None,
        "problem": problem,
        "engine": {"name": "cpu", "notes": {"instructions": "avx2", "tile": 32}},
        "reductions": {"requested": list(reductions), "found": {}},
        "threads": 2,
        "ranks": 1,
        "memory_limit_bytes": None,
        "read_seconds": [0.5],
        "prepare_seconds": [0.0625],
        "inference_seconds": list(seconds),
        "span": "layer loop, resident",
        "result": {
            "categories": categories,
            "categories_sha256": challenge.TRUTH_SHA256[problem["neurons"]] if problem["official"] else SHA,
            "survivors": survivors,
            "edges_computed": problem["edges"] * count // (10 if reductions else 1),
            "bytes_moved": None,
            "bytes_loaded": None,
            "digest": SHA,
            "sha256": SHA,
        },
        "peak_memory_bytes": 3 << 30,
        "machine": None,
        "distribution": None,
        "load": None,
        "passed_over": [],
        "time_to_solution": None,
        "comparison": None,
        "accuracy": None,
        "seal": None,
        "verdict": made_verdict(count, categories, True, "official" if problem["official"] else "oracle", problem),
        "environment": {
            "cpu": "A CPU", "cores": 2, "memory_bytes": 8 << 30, "gpu": None, "system": "Linux x86_64",
            "versions": {"numpy": "2.1.0", "python": "3.12.1"}, "commit": "abcdef123456", "code": SHA,
            "compiler": None, "lock": SHA, "command": "spdnn run",
        },
    }  # fmt: skip


def solved(record, seconds=2.5, of="command", cached=()):
    """The record with a time to solution; what is not inference went to the inputs."""
    first = record["inference_seconds"][0]
    told = solution(of, seconds, 0.25, cached, inputs=seconds - first, inference=first)
    return {**record, "time_to_solution": builtins(told)}


def measured(record, instruction_set="x86_64_v3", copy=1e11, load=1e12, l2_load=5e11, fma=2e11):
    """The record with a machine of one sample of each rate."""
    rates = {"copy_rates": [copy], "load_rates": [load], "l2_load_rates": [l2_load], "fma_rates": [fma]}
    return {**record, "machine": {"instruction_set": instruction_set, **rates}}


def agreed(record):
    """The record, whose verdict is on its problem."""
    result = record["result"]
    record["verdict"]["judged"] = judged(record["problem"], result["digest"], result["sha256"])
    return record


def stored(folder, *records):
    """The files of these records; the verdict of a run is on its problem."""
    paths = []
    for number, record in enumerate(records):
        if record["schema"] == "spdnn-record" and record["verdict"]["judged"]:
            agreed(record)
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps(record), encoding="utf-8")
    return paths


def stored_verdict(folder, case, verdict):
    (folder / case).mkdir()
    path = folder / case / "verdict.json"
    path.write_text(json.dumps(verdict), encoding="utf-8")
    return path


class Page(HTMLParser):
    """The text of a page, its <data> values, its tags with attributes, its scripts."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts, self.values, self.scripts, self.source = [], [], [], [], source
        self.feed(source)
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "data":
            self.values.append(float(dict(attrs)["value"]))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts.append(data)
        elif self.cdata_elem is None:
            self.texts.append(data)

    def runs_nothing_else(self):
        """Whether the one script is ours, the policy allows no other, and nothing is asked for."""
        ours = (Path(report.__file__).parent / "report.js").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(ours.encode()).digest()).decode()
        (policy,) = (attrs["content"] for attrs in self.all("meta") if "http-equiv" in attrs)
        allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        handlers = [name for _, attrs in self.tags for name in attrs if name.startswith("on")]
        tags = {tag for tag, _ in self.tags} & {"img", "link", "iframe", "object", "embed", "base"}
        return self.scripts == [ours] and policy.startswith(allowed) and not handlers and not tags

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def rendered(output, folders, *, figures=False, published=False, **more):
    """The page of these folders.

    Args:
        output: its file.
        figures: whether they are drawn, which takes most of the time.
        published: whether all published results are beside the records, and not one of twelve.
    """
    table = BASELINES
    if not published:
        head, *lines = BASELINES.read_text("utf-8").splitlines(keepends=True)
        table = output.with_suffix(".csv")
        table.write_text("".join([head, *lines[::12]]), "utf-8")
    none = mock.patch.object(pages, "drawings", return_value={})
    with contextlib.nullcontext() if figures else none:
        report.render(folders, output, table, **more)
    return Page(output.read_text("utf-8"))


def shown(records=(), verdicts=(), **more):
    """The page of these records, and of (case, verdict) beside them, as `rendered`; each is made once and only read."""
    return _shown(json.dumps(list(records)), json.dumps(list(verdicts)), **more)


@functools.cache
def _shown(records, verdicts, **more):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judged = [stored_verdict(folder, case, verdict) for case, verdict in json.loads(verdicts)]
        return rendered(
            folder / "report.html", [report.RecordFolder(stored(folder, *json.loads(records)), judged)], **more
        )


def typed(content, kind=RunRecord):
    """The record that a dictionary is."""
    return msgspec.convert(content, kind)


def collected(records, baselines=()):
    """The collection of these run records."""
    return collect([Part([typed(record) for record in records])], baselines)


def drawn(name, contents):
    """The figures of one section, by name, of run records or a collection."""
    [section] = [one for one in SECTIONS if one.name == name]
    values = section.values(collected(contents) if isinstance(contents, list) else contents)
    return {drawing.name: drawing for drawing in section.drawings(values)} if values else {}


def data(drawing):
    """The rows of a figure's table."""
    return list(csv.DictReader(io.StringIO(drawing.csv)))


def many():
    return [
        made_record(),
        made_record("1024-120.mnist.cpu.none.t2", (1.1, 1.0, 1.05), reductions=()),
        made_record("1024-1920.mnist.cpu.all.t2", (0.7, 0.72), layers=1920),
        made_record("65536-120.digits.cpu.dead.t2", (30.0,), official=False, source="digits", neurons=65536),
        made_record("64-12.digits.cpu.none.t2", (0.001,), official=False, source="digits", neurons=64, layers=12,
                    inputs=1000, reductions=()),
    ]  # fmt: skip


def test_numbers_are_the_records():
    record = made_record()
    page = shown([record], figures=True)
    rate = typed(record).edges_per_second
    for number in (rate.median, rate.low, rate.high, 0.11, 0.5, 0.0625):
        assert number in page.values
    assert record["result"]["edges_computed"] / 0.11 in page.values
    assert f"{rate.median / 1e12:.3f}" in page.text
    assert "cpu, 2 threads" in page.text
    assert page.text.count("1,024 × 120: passed verification") == 1
    assert "10.0 %" in page.text


def test_published_figures_stand_beside_official_networks_by_span():
    page = shown([made_record()], published=True)
    for rate in (1.58024e13, 1.76067e13, 1.674e13, 1.533e11, 2.917e13):
        assert rate in page.values
    assert "lossy" in page.text
    assert "Hidayetoglu et al., HPEC 2020, Table I, p. 5" in page.text


def test_how_far_from_the_limit():
    record = measured(made_record())
    edges = record["result"]["edges_computed"]
    page = shown([record])
    assert "How far from the limit" in page.text
    assert "loads from the nearest cache" in page.text
    assert "The machine was not measured" not in page.text
    for number in (2.5e11, 1e11, 4 * edges / 1e12, 4 * edges / 1e12 / 0.11):
        assert number in page.values
    assert f"{100 * 4 * edges / 1e12 / 0.11:.1f} %" in page.text
    record["result"]["bytes_moved"] = moved = 10**10
    page = shown([record])
    assert "Ceiling that binds" in page.text
    assert {moved, 0.1, 0.1 / 0.11} <= set(page.values)
    assert "<td>memory</td>" in page.source


def test_the_limit_of_a_gpu_is_its_own():
    """Shared memory is its nearest cache, and no thread's processor time measured it."""
    gpu = measured(made_record("gpu"), instruction_set="sm_90")
    page = shown([gpu])
    assert "<td>loads from shared memory</td>" in page.source
    assert "on the whole GPU that it used." in page.text
    assert "the ceilings are of a whole GPU" in page.text
    assert "of a GPU, what all its multiprocessors loaded from their shared memory" in page.text
    assert "copying from memory to memory (of a GPU, within its own), measured in the same moment." in page.text
    for untrue in ("loads from the nearest cache", "on as many threads", "of all threads", "own processor time"):
        assert untrue not in page.text
    gpu["result"]["bytes_moved"] = 10**10
    both = shown([gpu, measured(made_record("cpu"))])
    assert {"<td>loads from the nearest cache</td>", "<td>the GPU&#39;s memory</td>"} <= set(
        re.findall("<td>[^<]*</td>", both.source)
    )
    assert "on as many threads or on the whole GPU that it used." in both.text
    assert "of all threads together, or of a whole GPU" in both.text
    assert "Loads of threads are counted in each thread's own processor time" in both.text
    only = shown([measured(made_record("cpu"))])
    for untrue in ("whole GPU", "of a GPU", "a GPU does", "shared memory"):
        assert untrue not in only.text


def test_the_limit_is_left_out_where_no_machine_was_measured():
    page = shown([made_record()])
    assert "How far from the limit" not in page.text
    assert page.text.count("the machine was not measured with these runs") == 1
    assert "Load ceiling" not in page.text
    both = shown([made_record("without"), measured(made_record("with", (0.3,)))])
    assert "The machine was not measured with 1 run: without." in both.text
    assert "Load ceiling" in both.text


def test_a_ladder_shows_the_slowest_first_and_how_much_each_step_brings():
    steps = [((), 10.0), (("dead",), 2.0), (("dead", "inputs"), 0.5)]
    records = [made_record(f"rung-{k}", (seconds,), reductions) for k, (reductions, seconds) in enumerate(steps)]
    assert "One step at a time" not in shown(records[:2]).text  # two settings are no ladder
    several = [*reversed(records), made_record("other", (1.0,), layers=480)]
    assert shown(several).source.count("One step at a time</h3>") == 1
    figures = drawn("times", several)
    assert [name for name in figures if name.startswith("ladder")] == ["ladder-1"]
    figure = figures["ladder-1"]
    labels = ("cpu, no reductions", "cpu, dead inputs", "cpu, dead inputs, identical inputs")
    order = [figure.svg.index(f">{label}<") for label in labels]
    assert order == sorted(order)
    assert "2 s, 5 times as fast" in figure.svg
    assert "0.5 s, 20 times as fast" in figure.svg


def test_inputs_that_are_not_official_are_said_to_be():
    official = shown([made_record()]).text
    assert "not the official inputs" not in official
    digits = shown([made_record(official=False, source="digits")]).text
    assert "not the official inputs" in digits
    assert "no rate is compared with published ones" in digits
    assert "Best published" in digits
    fewer = shown([made_record(inputs=6000)]).text
    assert "official, other count, 6,000" in fewer
    assert "another number of inputs" in fewer
    assert "not the official inputs" not in fewer
    assert "no rate is compared with published ones" in fewer


def test_other_networks_have_no_published_figures():
    page = shown([many()[-1]], figures=True)
    assert "Networks of your own" in page.text
    assert "The twelve networks" not in page.text
    assert "figure-overview" not in page.source
    assert page.source.index('id="own"') < page.source.index("figure-times-whole")


def test_a_network_of_your_own_has_its_layers_and_widest_layer():
    record = made_record("mine", official=False, neurons=512, layers=3, inputs=8)
    whole = "inputs are padded to whole tiles"
    record["problem"]["network"] = {"source": "state dict"}
    page = shown([record])
    assert "3 layers, at most 512 wide" in page.text
    assert "512 × 3" not in page.text
    assert whole not in page.text
    record["result"]["edges_computed"] = 9 * record["problem"]["edges"]
    assert f"112 % of the edges: {whole}" in shown([record]).text


def test_the_part_of_a_time_that_came_from_a_cache_is_named():
    record = solved(made_record(), 0.5, "workflow", ["inputs"])
    page = shown([record])
    assert "inputs read from the cache" in page.text
    assert "Wall, start to end" in page.text
    assert "0.75" in page.text  # 0.5 to the solution, 0.25 besides


def test_marks_that_no_record_has_are_not_in_the_glossary():
    busy = made_record()
    busy["load"] = {"others": 0.5, "throttled": None}
    for record, there in ((made_record(), False), (busy, True)):
        assert ("term-busy-machine" in shown([record]).source) == there
        assert "term-older-code" not in shown([record]).source


def test_every_publication_is_listed_with_how_many_figures_it_gives():
    baselines = read_baselines(BASELINES)
    listed = shown([made_record()], published=True).source.split('aria-label="Sources of')[1].split("</table>")[0]
    citations = {baseline.source.split(";")[0] for baseline in baselines}
    assert listed.count("<tr>") == 1 + len(citations)
    assert sum(map(int, re.findall(r'class="number">(\d+)<', listed))) == len(baselines)


def test_reductions_are_named_beside_rates():
    page = shown([made_record(reductions=("dead", "inputs", "neurons"))])
    assert page.text.count("dead inputs, identical inputs, identical neurons") >= 3


def test_failed_verdict_is_a_failure_and_never_a_number():
    page = shown([], [("broken-case", made_verdict(passed=False))], figures=True)
    assert "1 case run, and 1 failed verification: broken-case." in page.text
    assert "7 categories of the ground truth are missing" in page.text
    assert page.values == []
    assert "<svg" not in page.source


@pytest.mark.parametrize(
    ("case", "passed", "told"),
    [
        ("mine", True, ["1,024 × 120: passed verification"]),
        ("untimed", True, ["all 2 cases passed verification", "not timed"]),
        ("mine", False, ["1 case run, and 1 failed verification: mine.", "its numbers are left out"]),
    ],
)
def test_a_verdict_beside_a_record(case, passed, told):
    record = made_record("mine")
    page = shown([record], [(case, made_verdict(passed=passed))])
    assert [sentence for sentence in told if sentence not in page.text] == []
    assert (typed(record).edges_per_second.median in page.values) == passed


SAMPLE = {"kind": "oracle", "source": "float64 oracle", "seed": 0}
OFFICIAL = {"kind": "official", "source": "official list", "inputs": 60_000, "checked": 60_000, "seed": None}


@pytest.mark.parametrize(
    ("truths", "told"),
    [
        ([(230, 60_000)], "Compared: 230 of 60,000 inputs with a float64 reference (1 case)."),
        (
            [(1822, 60_000), (230, 60_000)],
            "Compared: at least 230 of 60,000 inputs with a float64 reference (2 cases).",
        ),
        ([(5, 5), (60_000, 60_000)], "Compared: all inputs with a float64 reference (2 cases)."),
        ([OFFICIAL], "Compared: all 60,000 inputs with the official categories (1 case)."),
        (
            [OFFICIAL, (1, 9)],
            "Compared: all 60,000 inputs with the official categories (1 case); 1 of 9 inputs with a float64 "
            "reference (1 case).",
        ),
    ],
)
def test_the_page_says_first_how_many_inputs_were_compared(truths, told):
    given = [
        truth if truth is OFFICIAL else SAMPLE | dict(zip(("checked", "inputs"), truth, strict=True))
        for truth in truths
    ]
    verdicts = [typed(made_verdict() | {"truth": truth}, Verdict) for truth in given]
    found = headline(collect([Part(verdicts=[(f"case-{k}", one) for k, one in enumerate(verdicts)])]))
    assert found["compared"] == told
    parts = [verdict.truth.checked < verdict.truth.inputs for verdict in verdicts]
    whole, some = ("passed verification", "passed on a sample") if len(parts) == 1 else (
        "all 2 cases passed verification", f"all 2 cases passed, {'each' if all(parts) else '1'} on a sample"
    )  # fmt: skip
    assert found["short"] == (some if any(parts) else whole)


def test_the_three_groups_of_a_sample_are_named_and_counted():
    record = made_record(official=False)
    assert "Not compared: inputs outside the sample" not in shown([record]).text
    record["verdict"]["truth"] |= {"checked": 1_900, "seed": 0}
    record["verdict"]["values"]["every"] = 40
    page = shown([record])
    assert "Not compared: inputs outside the sample." in page.text
    assert '<td class="number">40; 1,860; 58,100</td>' in page.source


def test_the_page_says_what_the_output_digest_covers():
    assert "The output digest covers the active inputs and the bits of their last rows" in shown([made_record()]).text


def test_no_records():
    page = shown()
    assert "Nothing was run" in page.text
    assert page.values == []


def test_page_makes_no_request():
    page = shown(many(), figures=True, published=True)
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            # What a link carries is inside it, and is saved, not opened.
            carried = "download" in attrs and (attrs[name].startswith("data:") if name in attrs else True)
            assert carried or (attrs.get(name) or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", page.source)
    assert page.runs_nothing_else()


def test_runs_of_other_machines_have_their_device_and_date(tmp_path):
    here, there = made_record("here"), made_record("there")
    there["environment"] = {**there["environment"], "gpu": "NVIDIA H<200>"}
    there["created"] = "2026-03-04T05:06:07Z"
    alone = shown([here]).text
    assert "A CPU, 2 cores, 20" not in alone
    names = [str(path) for path in stored(tmp_path, here, there)]
    assert main(["report", *names, "-o", str(tmp_path / "both.html")]) == 0
    page = Page((tmp_path / "both.html").read_text("utf-8"))
    assert "NVIDIA H<200> (A CPU, 2 cores), 2026-03-04" in page.text
    assert f"A CPU, 2 cores, {here['created'][:10]}" in page.text
    assert "all 2 cases passed verification" in page.text
    assert "NVIDIA H<200> (A CPU, 2 cores), 2026-03-04" in shown([there]).text


def test_only_the_reductions_that_were_on_are_explained():
    def meaning(*records):
        return shown(records).text.split("Glossary: what each number includes")[1]

    text = meaning(made_record())
    assert "Dead inputs: rows" in text
    assert "Identical inputs: " not in text
    assert "Dead inputs: rows" in meaning(made_record(reductions=()))
    text = meaning(made_record(), made_record("other", reductions=("neurons",)))
    assert "Identical neurons: outputs" in text
    assert "Identical inputs: " not in text


def test_the_same_record_twice_counts_once():
    record = made_record()
    once = shown([record]).source
    assert shown([record, dict(reversed(record.items()))]).source == once


def test_two_runs_of_one_case_are_both_shown():
    first, second = made_record(), made_record()
    second["environment"]["cpu"] = "Another CPU"
    page = shown([first, second])
    assert "all 2 cases passed verification" in page.text
    assert "Another CPU" in page.text
    assert shown([second, first]).source == page.source


def test_official_networks_are_known_by_the_formula_that_makes_them():
    record = made_record(official=False)
    made = RadixNet(1024, 120).description
    for network, known in (
        (made, True),
        (RadixNet(1024, 120, seed=1).description, False),
        (made | {"bias": -0.25}, False),
    ):
        record["problem"]["network"] = network
        assert ("Networks of your own" not in shown([record]).text) == known


def test_every_span_is_defined():
    text = shown([made_record()]).text
    for meaning in {**SPANS, **words.RECORD_SPANS}.values():
        assert meaning in text


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": "spdnn-record"}', "NaN", "\x00", "null"])
def test_broken_record_is_one_sentence(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(str(path))) as caught:
        report.render([report.RecordFolder([path])], tmp_path / "report.html", BASELINES)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_failed_record_is_refused():
    record = made_record()
    record["verdict"] = made_verdict(passed=False)
    with pytest.raises(InputError, match=r"verdict\.passed"):
        shown([record])


def test_curves_leave_out_what_a_deeper_run_shows():
    runs = collected(many()).runs
    labels = [curve.label for curve in curves(runs, 9)]
    assert labels == [
        "64 neurons × 12 layers, digits, 1,000 inputs",
        "1,024 neurons × 1,920 layers, official, 60,000 inputs",
        "65,536 neurons × 120 layers, digits, 60,000 inputs",
    ]


def test_figures_are_plain_functions():
    def plotted():
        figure = replace(survivors([Curve("a < b & $x^{$", (10, 3, 0))]), title="<t>", caption="<c>")
        return save(figure, "times")

    with style():
        once = plotted()
        assert once == plotted()
    assert "a &lt; b &amp; $x^{$" in once.svg
    assert "<title>&lt;t&gt;</title>" in once.svg
    assert "<desc>&lt;c&gt;</desc>" in once.svg
    assert once.csv == "network and inputs,layer,survivors\n" + "".join(
        f"a < b & $x^{{$,{layer},{count}\n" for layer, count in ((1, 10), (2, 3), (3, 0))
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.0, "0"), (1812, "1,812"), (0.153, "0.1530"), (26.4, "26.40"), (351.25, "351.2"), (2143.67, "2,144"),
     (1.25e-6, "1.250e-06"), (1e20, "1.000e+20")],
)  # fmt: skip
def test_significant(number, text):
    assert words.significant(number) == text


def test_sizes_and_plurals():
    assert words.size(None) == "unknown"
    assert words.size(1) == "1 B"
    assert words.size(3 << 30) == "3.0 GiB"
    assert words.plural(1, "case") == "1 case"
    assert words.plural(1200, "case") == "1,200 cases"
    assert words.printable("a\x00b\n" + "c" * 300, 10) == "a b ccccc…"
    assert words.printable("caf" + "e" + "\u0301" * 40 + " Việt") == "cafe\u0301\u0301 Việt"


def test_what_is_absent_leaves_one_line_on_how_to_get_it():
    wanted = {
        "config/strong.yaml": "Scaling", "config/schedules.yaml": "Schedules", "config/peers.yaml": "Other libraries",
        "config/ops.yaml": "Sparse products", "spdnn challenge": "The distance to the machine",
    }  # fmt: skip
    page = shown([made_record()])
    folded = page.source.split('<details class="absent">')[1].split("</details>")[0]
    lines = re.findall(r"<p>(.*?)</p>", folded)
    for command, section in wanted.items():
        assert sum(f"<code>{command}" in line.replace("snakemake --configfile ", "") for line in lines) == 1, command
        assert any(line.startswith(section) for line in lines), section


def test_a_ladder_is_of_one_machine_and_tells_what_times_include():
    reductions = ((), ("dead",), ("dead", "inputs"))
    here = [made_record(f"here-{len(on)}", (1.0 + len(on),), on) for on in reductions]
    there = [made_record(f"there-{len(on)}", (0.1,), on) for on in reductions]
    for record in there:
        record["environment"]["cores"] = 64
    here[0]["span"] = words.STREAMED
    own = collected([*here, *there]).own
    found = {ladder["runs"][0].record.environment.cores: ladder for ladder in ladders(own)}
    assert {cores: len(one["rungs"]) for cores, one in found.items()} == {2: 3, 64: 3}
    assert all(run.case.startswith("here") for run in found[2]["runs"])
    assert sum(rung.label.endswith(f": {words.STREAMED}") for rung in found[2]["rungs"]) == 1
    assert not any(":" in rung.label for rung in found[64]["rungs"])


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (3, "0, 1, 2"), (4, "0, 1, 2, and 1 more"), (7, "0, 1, 2, and 4 more")]
)
def test_long_lists_end_with_how_many_more(count, told):
    assert words.listed([str(k) for k in range(count)], 3) == told
