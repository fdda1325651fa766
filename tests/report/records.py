"""Records, verdicts and pages that the tests of the report, and of what makes records, share."""

import base64
import contextlib
import csv
import functools
import hashlib
import io
import json
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np

from spdnn.core import challenge
from spdnn.core.table import Rows, plain
from spdnn.core.validation import builtins
from spdnn.report import page as pages
from spdnn.report import rendering as report
from spdnn.report.common.blocks import Paragraph
from spdnn.report.common.collection import Part, collect
from spdnn.report.common.drawing import Figure, save, style
from spdnn.report.sections import modules
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.samples import TimeToSolution
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
    told = TimeToSolution.of_parts(of, seconds, 0.25, cached, inputs=seconds - first, inference=first)
    return {**record, "time_to_solution": builtins(told)}


def measured(record, instruction_set="x86_64_v3", copy=1e11, load=1e12, l2_load=5e11, fma=2e11):
    """The record with a machine of one sample of each rate."""
    rates = {"copy_rates": [copy], "load_rates": [load], "l2_load_rates": [l2_load], "fma_rates": [fma]}
    return {**record, "machine": {"instruction_set": instruction_set, **rates}}


def counted(record):
    """The record as of version 3: its layers counted as survivors and reductions have them, in whole tiles of 32."""
    problem, result, on = record["problem"], record["result"], record["reductions"]["requested"]
    layers, count = problem["layers"], problem["input_count"]
    edges = [problem["edges"] // layers] * layers
    into = [count, *result["survivors"][:-1]] if "dead" in on else [count] * layers
    done = [-(-rows // 32) * 32 * each for rows, each in zip(into, edges, strict=True)]
    counts = {"layer_rows": into, "layer_edges": edges, "layer_edges_computed": done, "edges_computed": sum(done)}
    found = {"dead": {"rows_may_leave_before_layer": 1}} if "dead" in on else {}
    survivors = {"rule": "within rounding", "inputs": count, "failures": 0, "first": []}
    return {
        **record,
        "version": 3,
        "result": result | counts,
        "reductions": record["reductions"] | {"found": found},
        "verdict": record["verdict"] | {"version": 3, "survivors": survivors},
    }


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


def collected(records=(), baselines=(), verdicts=(), expected=(), operations=()):
    """The collection of these run records, of (case, verdict) beside them, and of operation records."""
    judged = [(case, typed(verdict, Verdict)) for case, verdict in verdicts]
    part = Part([typed(record) for record in records], judged, expected)
    return collect([part], baselines, [typed(record, OperationRecord) for record in operations])


def section_of(name, contents):
    """The section of that name, of run records or a collection; None: it has nothing to show."""
    [module] = [one for one in modules() if name == one.NAME]
    return module.section(collected(contents) if isinstance(contents, list) else contents)


def drawn(name, contents):
    """The figures of one section, by name, of run records or a collection."""
    section = section_of(name, contents)
    with style():
        return {figure.name: save(figure, name) for figure in section.every(Figure)} if section else {}


def figures_of(section):
    """The figures of a section by name, not drawn."""
    return {figure.name: figure for figure in section.every(Figure)}


def told(section):
    """The paragraphs of a section as text, a line each."""
    return "\n".join(plain(paragraph.text) for paragraph in section.every(Paragraph))


def table_of(section, title):
    """The table of a section whose title begins so."""
    return next(rows for rows in section.every(Rows) if (rows.title or rows.table.title).startswith(title))


def cells(rows):
    """The rows of a table by the names of its columns in CSV: numbers as they are, texts."""
    return list(csv.DictReader(io.StringIO(rows.table.csv(rows.rows))))


def texts(rows):
    """The rows of a table as it is shown, by the heads of its columns: what is below a value is in brackets."""
    _, (heads, *lines) = rows.table.texts(rows.rows)
    return [dict(zip(heads, line, strict=True)) for line in lines]


def many():
    return [
        made_record(),
        made_record("1024-120.mnist.cpu.none.t2", (1.1, 1.0, 1.05), reductions=()),
        made_record("1024-1920.mnist.cpu.all.t2", (0.7, 0.72), layers=1920),
        made_record("65536-120.digits.cpu.dead.t2", (30.0,), official=False, source="digits", neurons=65536),
        made_record("64-12.digits.cpu.none.t2", (0.001,), official=False, source="digits", neurons=64, layers=12,
                    inputs=1000, reductions=()),
    ]  # fmt: skip
