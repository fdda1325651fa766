"""The workflow, run for real in folders of their own: from nothing to the report, failing, interrupted, elsewhere.

One run makes what most tests read (`whole`); the others begin with a copy of it and make what is theirs.
"""

import base64
import html
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import yaml
from children import ended, finished, started, until
from test_deployment import module

from spdnn.cli import main
from spdnn.core import endings
from spdnn.core.errors import SpdnnError
from spdnn.core.request import RunRequest
from spdnn.core.validation import builtins
from spdnn.runs.records.cases import read_cases
from spdnn.runs.records.files import as_text, read_all, read_record
from spdnn.runs.workflow import config, decisions, estimates
from spdnn.runs.workflow.decisions import Decisions, own_cases
from spdnn.runs.workflow.targets import Targets

pytestmark = pytest.mark.xdist_group("workflow")
full = pytest.mark.full("workflow")

BIN = Path(sys.executable).parent
# Few layers and inputs: what jobs cost is what they start. Weak scaling: a case of two ranks has twice the inputs.
SETTINGS = """
source: unstructured
layers: [3]
count: null
inputs_per_rank: 200
engine: [taskgraph]
schedule: [stream]
device_memory: 30000000
threads: [1]
ranks: [1, 2]
partition: [cyclic]
peers: {widths: [1024], count: 64, seconds: 1, libraries: [scipy], threads: 2,
        network: {neurons: 1024, layers: 2, inputs: digits, count: 100, repeats: 2}}
ops: {sets: {a: [98]}, networks: [transformer], phases: [inference], operations: [spmm], models: [],
      libraries: [scipy], seconds: 0.01, threads: 2, seed: 0, dlmc: null}
"""
OWN = "{{network: layers, layers: 2, inputs: x.npy, last: relu, rows: inputs, bias: 0, clip: 32{more}}}"
MINE, ALONE, DOUBTFUL = (OWN.format(more=more) for more in ("", ", ranks: 1", ", truth: wrong.txt"))
BROKEN = "{network: damaged.npy, layers: 2, inputs: x.npy}"
ROOT = Path(__file__).resolve().parents[2]
DECIDED = Decisions(cores=2)
PRESET = ("--configfile", ROOT / "config/smoke.yaml")


def requests(*texts, **changes):
    """The requests of the default configuration as these presets, texts of YAML, and then the changes change it."""
    default, given = yaml.safe_load((ROOT / "config/config.yaml").read_text()), {}
    for text in texts:
        given |= yaml.safe_load(text)
    checked = config.check(own_cases(default, given | changes), ROOT / "workflow/schemas/config.schema.yaml")
    return {request.name: request for request in config.requests(checked, DECIDED)}


def asked(*own, **changes):
    """The requests of the smoke preset with SETTINGS, network files and changes, by the names of their cases."""
    own = [yaml.safe_load(item) for item in own]
    return requests((ROOT / "config/smoke.yaml").read_text(), SETTINGS, cases=own, **changes)


CASES = list(asked(ALONE))


def command(folder, *arguments, decided=True):
    snakefile, made = ROOT / "Snakefile", Path(folder, decisions.FILE)
    if decided and not made.exists():  # as where memory is enough: its limit would be a part of all names
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(as_text(DECIDED, "decisions"))
    return [BIN / "snakemake", "--snakefile", snakefile, "--directory", folder, "--cores", "2", *arguments]


def snakemake(folder, *arguments, decided=True):
    """(exit status, all that was printed)."""
    with started(command(folder, *arguments, decided=decided), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                 stderr=subprocess.STDOUT, text=True) as process:  # fmt: skip
        return ended(process)[:2]


def passed(folder, *arguments, decided=True):
    """What a run printed that did what was asked for."""
    status, text = snakemake(folder, *arguments, decided=decided)
    assert status == 0, text
    return text


def refused(folder, *arguments, decided=True):
    """What a run printed that did not, in sentences."""
    status, text = snakemake(folder, *arguments, decided=decided)
    assert status != 0
    assert "Traceback" not in text
    return text


def jobs(text):
    """How many jobs of each rule Snakemake's table has."""
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)}


def described(text):
    """(rule, {name: value} of wildcards and resources) of each job that a cluster gets, as a dry run prints it."""
    for rule, part in (part.split(":", 1) for part in text.split("\nrule ")[1:]):
        words = ", ".join(re.findall(r"^    (?:wildcards|resources): (.*)", part.split("\n\n")[0], re.MULTILINE))
        yield rule, dict(word.split("=", 1) for word in words.split(", ") if "=" in word)


def shadow_the_standard_library(folder):
    """Files of the user's own with the names of modules that Python imports; none is to be run."""
    for name in sys.stdlib_module_names - {*sys.builtin_module_names}:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the user was run')\n")


def networks(*own):
    return f"cases=[{', '.join(own)}]"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The arguments that name the smoke preset and SETTINGS; the same for each folder, for records tell them."""
    path = tmp_path_factory.mktemp("settings") / "settings.yaml"
    path.write_text(f"{SETTINGS}cases: [{ALONE}]\n")
    return [*PRESET, path]


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    """A folder in which the smoke preset ran with SETTINGS, from nothing; do not write to it."""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(2)
    (folder / "layers").mkdir()  # named like inputs of ours: a name must not decide what is read
    for k in (1, 2):
        sp.save_npz(folder / f"layers/{k}.npz", sp.random_array((30, 30), density=0.3, rng=rng, format="csc"))
    np.save(folder / "x.npy", rng.random((100, 30)).astype(np.float32))
    shadow_the_standard_library(folder)
    passed(folder, *settings, "--notemp")  # others go on from its stores
    return folder


@pytest.fixture(scope="module")
def copied(whole, tmp_path_factory):
    """A function: a copy of that folder, of a name."""
    return lambda name="of": shutil.copytree(whole, tmp_path_factory.mktemp("copy") / name, symlinks=True)


def records_of(folder):
    return {path.stem: builtins(read_record(path)) for path in folder.glob("results/records/*.json")}


# ---- a run that succeeds ----


def test_from_nothing_to_the_report(whole):
    records = records_of(whole)
    assert set(records) == set(CASES)
    page = (whole / "results/report.html").read_text()
    for name, record in records.items():
        assert record["verdict"]["passed"]
        count = record["problem"]["input_count"]
        truth = {"kind": "oracle", "source": "float64 reference", "inputs": count, "checked": count, "seed": None}
        assert record["verdict"]["truth"] == truth
        assert record["problem"]["official"] is None
        assert len(record["inference_seconds"]) == 3
        solution = record["time_to_solution"]
        assert (solution.pop("of"), solution.pop("cached"), solution.pop("other")) == ("workflow", [], 0)
        assert min(solution.values()) > 0
        categories = (whole / f"results/runs/{name}/categories.txt").read_text().split()
        assert len(categories) == record["result"]["categories"] > 0
        assert record["reductions"]["requested"] == ["dead", "inputs", "neurons"]
        notes = record["engine"]["notes"]
        assert (notes["schedule"], notes["devices"], notes["device_memory_bytes"]) == ("stream", 1, 30_000_000)
        assert max(notes["memory_bytes"]) <= 30_000_000
        assert name in page
    assert "digits" in page
    assert not [path for path in (whole / "results").rglob("*") if path.name.endswith(".part")]
    one, two, own = (records[name] for name in CASES)
    assert [(record["ranks"], record["distribution"]) for record in (one, own)] == [(1, None)] * 2
    assert (two["ranks"], two["distribution"]["partition"]) == (2, "cyclic")
    assert [rank["inputs"] for rank in two["distribution"]["per_rank"]] == [200, 200]


def test_other_libraries_and_sparse_operations_are_measured_beside_ours(whole):
    records = [builtins(read_record(path)) for path in sorted(whole.glob("results/peers/*.json"))]
    assert [(record["engine"]["name"], record["problem"]["layers"]) for record in records] == [
        ("cpu", 1), ("scipy", 1), ("cpu", 2), ("cpu", 2), ("scipy", 2),
    ]  # fmt: skip
    operations = builtins(read_all([whole / "results/ops/operations.jsonl"])[1])
    assert [record["program"]["name"] for record in operations] == ["ours", "scipy"] * 4
    assert {record["problem"]["network"] for record in operations} == {"transformer"}
    for record, target in ((records[0], "results/peers"), (operations[0], "results/ops/operations.jsonl")):
        words = shlex.split(record["environment"]["command"])
        assert words[:5] == ["snakemake", "--cores", "2", target, "--configfile"]
        assert [Path(path).name for path in words[5:]] == ["smoke.yaml", "settings.yaml"]


def test_a_record_holds_the_request_of_its_case(whole):
    """As the configuration asked for it; and Snakemake has nothing to do for it alone."""
    for name, request in asked(ALONE).items():
        record = records_of(whole)[name]
        assert RunRequest.of(record["request"]) == request
        assert shlex.split(record["environment"]["command"]) == request.command()
        assert record["configuration"] == "smoke + settings"


def test_what_is_there_is_shared_and_what_changed_runs_again(whole, settings):
    """Depths share networks, changed repeats change one case, official files are fetched; all cores for a clock, also
    where a case has more threads, which a warning says.
    """
    official = "{source: official, inputs: [official, mnist], layers: 120, engine: cpu, threads: 999, ranks: [1, 2]}"
    cases = networks(MINE.replace("}", ", repeats: 4}"), official)
    text = passed(whole, "--dry-run", *settings, "--config", "layers=[1,3]", "ranks=[2,1,3]", cases)
    assert {rule: count for rule, count in jobs(text).items() if rule not in ("all", "total")} == {
        "fetch_file": 3, "import_network": 1, "import_inputs": 1, "make_inputs": 1, "prepare": 1, "infer": 4,
        "infer_ranks": 7, "verify": 11, "benchmark": 11, "report": 1,
    }  # fmt: skip
    assert re.search(r"^spdnn: warning: config: 1998 threads on \d+ cores run slower", text, re.MULTILINE)
    for name in ("dnn/neuron1024.tar.gz", "mnist/sparse-images-1024.tsv.gz", "mnist/train-images-idx3-ubyte.gz"):
        assert f"results/data/{name}" in text
    every_core = {part.split(":")[0] for part in text.split("\nrule ")[1:] if "    threads: 2\n" in part}
    assert every_core >= {"infer", "infer_ranks"}
    assert "verify" not in every_core


@pytest.mark.parametrize("words", [["--max-threads", "1"], ["--set-threads", "infer=1", "infer_ranks=1"]])
def test_no_job_runs_beside_a_timed_one(tmp_path, words):
    """Although there are cores for six of them."""
    np.save(tmp_path / "x.npy", np.ones((2, 30), np.float32))
    for k in (1, 2, 3):
        sp.save_npz(tmp_path / f"{k}.npz", sp.eye_array(30, format="csr") * k)
    cases = [f"{{network: {k}.npz, inputs: x.npy, last: none, rows: inputs, ranks: [1, 2]}}" for k in (1, 2, 3)]
    text = passed(
        tmp_path, "--cores", "6", *words, "--config", "neurons=[]", "threads=1", "repeats=1", networks(*cases)
    )
    under_way, timed = {}, 0
    for begins, rule, number, ends in re.findall(
        r"^(?:local)?(rule) (\w+):\n(?:    .*\n)*?    jobid: (\d+)|^Finished jobid: (\d+)", text, re.MULTILINE
    ):
        if begins:
            under_way[number] = rule
        else:
            del under_way[ends]
        if timed_ones := {*under_way.values()} & {"infer", "infer_ranks"}:
            assert len(under_way) == len(timed_ones) == 1
            timed += 1
    assert timed == 6
    assert not under_way


def test_nothing_to_do_the_second_time(whole, settings):
    """Also after dry runs of other configurations, which write nothing."""
    assert "Nothing to be done" in passed(whole, *settings)
    assert read_cases(whole / "results/cases.json").cases == CASES
    told = json.loads((whole / "results/cases.json").read_text())
    assert shlex.split(told["command"])[-3:-1] == [str(path) for path in settings[1:]]
    assert [Path(path).name for path in told["configfiles"]] == ["smoke.yaml", "settings.yaml"]


@pytest.mark.parametrize(
    "stream",
    [">/dev/full", "2>&-", *(pytest.param(stream, marks=full) for stream in ("| true", ">&-", "<&- >&- 2>&-"))],
)
def test_a_run_whose_last_lines_nobody_reads_has_succeeded(copied, settings, stream):
    folder = copied()
    os.utime(folder / "results/report.html", (5, 5))
    line = f'{{ "$@"; echo $? >"$0"; }} {stream}'
    again = command(folder, *settings, "--forcerun", "report")
    _, _, text = finished(["sh", "-c", line, folder / "status", *again])
    assert (folder / "status").read_text() == "0\n", text
    assert (folder / "results/report.html").stat().st_mtime > 5
    assert "Traceback" not in text
    assert "Exception ignored" not in text


@pytest.mark.parametrize(
    ("name", "rule", "digest"),
    [("x.npy", "import_inputs", "inputs_sha256"), ("layers/2.npz", "import_network", "network_identity")],
)
def test_an_older_file_in_place_of_another_is_another(copied, settings, name, rule, digest):
    """Inputs, and a layer in the folder of a network."""
    folder = copied()
    before, changed = records_of(folder)[CASES[-1]]["problem"], folder / name
    if name == "x.npy":
        np.save(changed, np.load(changed)[::-1])
    else:
        sp.save_npz(changed, sp.load_npz(changed) * 2)
    os.utime(changed, (1, 1))
    text = passed(folder, *settings)
    assert {rule, "infer", "verify", "benchmark", "report"} <= set(jobs(text))
    assert records_of(folder)[CASES[-1]]["problem"][digest] != before[digest]
    assert "Nothing to be done" in passed(folder, *settings)


def test_results_are_known_where_snakemake_has_forgotten_them(copied, settings):
    """As after `make clean`, or in a copy of results/."""
    folder = copied()
    for changes, expected in (
        ([], {}),
        (["repeats=4"], {"infer": 2, "infer_ranks": 1, "verify": 3, "benchmark": 3, "report": 1}),
        (
            ["oracle_edges=1.0e+8", "cases=[]", "ops=null"],
            {"infer": 1, "infer_ranks": 1, "verify": 2, "benchmark": 2, "report": 1},
        ),
    ):
        shutil.rmtree(folder / ".snakemake")
        text = passed(folder, "--dry-run", *settings, *(["--config", *changes] if changes else []))
        assert {rule: count for rule, count in jobs(text).items() if rule not in ("all", "total")} == expected
    shutil.rmtree(folder / ".snakemake")
    text = passed(folder, "--dry-run", *settings, "--config", "peers={seconds: 2}")
    assert {*jobs(text)} >= {"peers", "report"}
    assert "infer" not in jobs(text)


def test_snakemakes_own_report_has_every_figure_with_its_category_and_caption(whole, settings):
    passed(whole, *settings, "--report", "snakemake-report.html")
    page = (whole / "snakemake-report.html").read_text()
    results, categories = (
        json.JSONDecoder().raw_decode(page.split(f'<script id="{name}">\n    var {name} = ')[1])[0]
        for name in ("results", "categories")
    )
    assert results["results/report.html"]["labels"] == {"page": "verdicts and throughput"}
    figures = {str(path.relative_to(whole)): path for path in whole.glob("results/figures/*/*.svg")}
    assert {"results/figures/peers/peers.svg", "results/figures/times/times-whole.svg"} <= set(figures)
    assert set(results) == {"results/report.html", *figures}
    for name, path in figures.items():
        shown, told = results[name], path.with_suffix(".rst").read_text()
        assert name in categories[path.parent.name]["Other"]
        assert shown["labels"] == {"figure": path.stem}
        assert base64.b64decode(shown["data_uri"].split("base64,")[1]) == path.read_bytes()
        caption = html.unescape(re.sub(r"<[^>]+>", "", shown["caption"]))
        assert caption.startswith(told.strip().replace("*", "").replace("\\", ""))
        said = {
            "peers": ["Configuration: widths 1024; "],
            "operations": ["Configuration: sets a; networks transformer; "],
        }.get(path.parent.name, [
            "Configuration: neurons 1024; layers 3; source unstructured; inputs digits; ",
            "repeats 3; further cases: 1. Its data as CSV",
        ])  # fmt: skip
        assert all(words in " ".join(caption.split()) for words in said)
        assert "system-message" not in shown["caption"]


def test_another_configuration_of_a_deployment_has_a_page_of_its_own(copied, settings):
    """As a module of Snakemake, for which times alone count, with fewer cases and a record of another folder; where the
    environment and the folder have a blank in their paths.
    """
    folder = copied("a folder")
    for path in folder.glob("*.py"):
        path.unlink()  # Snakemake itself imports from where a Snakefile lies, and here one will
    (folder / "venv").symlink_to(sys.prefix)
    module(folder, ROOT)
    (folder / "results/measured").mkdir()
    shutil.copy(folder / f"results/records/{CASES[0]}.json", folder / "results/measured")
    (folder / "results/records/of-before.json").write_text("{}")  # of an older version, say
    given = ["cases=[]", "peers=null", "ops=null", "other_records=[results/measured]"]
    python, *words = command(folder, "--snakefile", folder / "Snakefile", *settings, "--config", *given)
    words = ["-P", "-m", python.name, *words, "--rerun-triggers", "mtime"]
    status, out, text = finished([folder / "venv/bin/python", *words])
    assert status == 0, text
    assert out.endswith("report: results/report.html\n")
    assert set(jobs(text)) == {"report", "all", "total"}
    assert read_cases(folder / "results/cases.json").cases == CASES[:2]
    page = (folder / "results/report.html").read_text()
    assert "all 2 cases passed verification" in page
    assert "Runs of results/measured: 1" in page
    assert not any(words in page for words in (CASES[2], "Other libraries in the same run"))


@full
def test_a_job_of_a_cluster_in_an_environment_with_a_blank(tmp_path):
    (folder := tmp_path / "a folder").mkdir()
    (folder / "venv").symlink_to(sys.prefix)
    shadow_the_standard_library(folder)
    executor = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", "sh", "--jobs", "1"]
    python, *words = command(folder, *executor, "results/networks/radixnet-1024.safetensors")
    status, *text = finished([folder / "venv/bin/python", "-P", "-m", python.name, *words])
    assert status == 0, text


def test_a_page_of_the_results_tells_what_is_missing(whole, tmp_path, capsys):
    """As of a run that ended after its first verdict."""
    (tmp_path / f"results/runs/{CASES[0]}").mkdir(parents=True)
    for name in ("cases.json", f"runs/{CASES[0]}/verdict.json"):
        shutil.copy(whole / "results" / name, tmp_path / "results" / name)
    given = ["report", str(tmp_path / "results"), "-o", str(tmp_path / "page.html")]
    assert main(given) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(case in page for case in CASES)
    assert "2 cases missing" in page
    (tmp_path / "results/cases.json").write_text("[]")
    capsys.readouterr()
    assert main(given) == 1
    assert re.fullmatch(r"spdnn: .*cases\.json: .*\n", capsys.readouterr().err)


# ---- runs that fail ----

MESSAGES = {"unstructured": "the launcher: no rank can read it", "layers": "no host is left"}
LAUNCHER = """#!/bin/sh
case "$*" in
*wrong.txt*) shift 3; exec "$@" ;;  # as a launcher of another MPI than mpi4py's: every process is a run of one rank
*prepared/unstructured*) echo "$@"; echo 'spdnn: {unstructured}' >&2; exit 3 ;;
*prepared/layers*) echo 'spdnn: warning: slow'; seq 100 130; echo '{layers}'; exit 3 ;;
esac
"""


@pytest.fixture(scope="module")
def failed(copied, settings):
    """(folder, what was printed) of a run with cases that fail, each in a way of its own, beside records of others."""
    folder = copied()
    (folder / "wrong.txt").write_text("1\n")
    (folder / "damaged.npy").write_text("not an array")
    (folder / "launcher").write_text(LAUNCHER.format(**MESSAGES))
    (folder / "launcher").chmod(0o755)
    own = networks(MINE, DOUBTFUL, BROKEN)
    given = [*settings, "--config", "partition=[static]", own]
    launcher = ["--set-resources", f'infer_ranks:mpi="{folder}/launcher --mpi=pmi2"']
    status, text = snakemake(folder, *given, *launcher, "--keep-going")
    assert status == 1, text
    assert "Traceback" not in text
    return folder, text


def log_of(folder, rule, name):
    (found,) = folder.glob(f"results/logs/{rule}/{name}*.log")
    return found.read_text()


def test_a_failed_case_has_no_record_and_the_page_has_the_others(failed):
    folder, text = failed
    requests = asked(MINE, DOUBTFUL, BROKEN, partition=["static"])
    failures = [name for name, request in requests.items() if request.truth and request.ranks == 1]
    told = re.search(r"^spdnn: results/report.html is of a run that failed: (.*)$", text, re.MULTILINE)[1]
    assert told == f"2 of 8 cases passed verification, 1 failed ({', '.join(failures)}), 5 missing"
    assert read_cases(folder / "results/cases.json").cases == list(requests)
    assert len(requests) == 8
    assert set(records_of(folder)) == set(CASES) > set(requests) & set(CASES)
    page = (folder / "results/report.html").read_text()
    for words in (
        "199 categories are not in the ground truth",
        "Other libraries in the same run",
        "Sparse operations for deep learning",
    ):
        assert words in page
    numbers = re.findall(r'<tr(?! class="failed")[^>]*>(?:(?!</tr>).)*<data(?:(?!</tr>).)*</tr>', page, re.DOTALL)
    for name in CASES:
        assert any(name in row for row in numbers) == (name in requests)
    assert not any(name in row for row in numbers for name in failures)
    assert not (folder / "results/figures").exists()
    assert "verification failed (199 categories are not in the ground truth" in log_of(folder, "benchmark", failures[0])


def test_the_page_of_a_failed_run_does_not_pass_for_that_of_another(failed, settings):
    """It is the newest file of all, and the run before it asked for just what is asked for here."""
    arguments = ["results/report.html", "--rerun-triggers", "mtime", "--dry-run"]
    assert set(jobs(passed(failed[0], *arguments, *settings))) == {"report", "total"}


def test_what_stops_several_ranks_is_on_the_terminal_and_in_the_log(failed):
    folder, text = failed
    for name, message in MESSAGES.items():
        told = f"spdnn: {message}" if name == "unstructured" else message
        assert re.search(f"^{told}$", text, re.MULTILINE)
        cases = asked(MINE, partition=["static"]).items()
        (case,) = (case for case, request in cases if case.startswith(name) and request.ranks == 2)
        assert re.search(f"^{told}$", log_of(folder, "infer_ranks", case), re.MULTILINE)
        assert not list(folder.glob(f"results/runs/{case}/*"))
    assert not re.search(
        r"^--mpi=pmi2|^spdnn: warning: slow", text, re.MULTILINE
    )  # where there is a sentence, it alone
    assert re.search(r"^130$", text, re.MULTILINE)
    assert not re.search(r"^100$", text, re.MULTILINE)  # else the last lines
    assert "2 ranks were asked for and 1 started; start as many" in text
    assert re.search(r"^spdnn: damaged\.npy: ", text, re.MULTILINE)  # a mistake in a rule


def test_a_launcher_of_ones_own_is_given_the_ranks_and_the_case(failed):
    words = log_of(failed[0], "infer_ranks", "unstructured*static").split()
    assert words[:3] == ["--mpi=pmi2", "-n", "2"]
    module = words.index("-m")  # the path of Python is before it
    assert words[module : module + 3] == ["-m", "spdnn", "run"]
    request = RunRequest.of(json.loads(words[module + 3]))
    (expected,) = (one for one in asked(partition=["static"]).values() if one.ranks == 2)
    assert request == expected
    assert "--memory" not in words


@full
def test_a_case_that_was_corrected_is_on_the_page(failed, settings, tmp_path):
    folder = shutil.copytree(failed[0], tmp_path / "corrected", symlinks=True)
    (folder / "wrong.txt").write_text("\n".join(map(str, range(1, 201))))
    own = ALONE, DOUBTFUL.replace("}", ", ranks: 1}")
    passed(folder, *settings, "--config", networks(*own))
    page = (folder / "results/report.html").read_text()
    assert "199 categories" not in page
    assert all(name in page for name in asked(*own))
    assert list(folder.glob("results/figures/*/*.svg"))


@pytest.mark.needs("mnist")
def test_interrupted_and_started_again(tmp_path, mnist_file, monkeypatch):
    """The preset with the official inputs, which are fetched from the mirror, and no reductions, so that it lasts."""
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where Snakemake leaves a folder when it is killed
    given = [*PRESET, "--config", "inputs=mnist", "reductions=none", "threads=1"]
    run = command(tmp_path, *given, "count=null", "repeats=1000")
    with started(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        until(lambda: list(tmp_path.glob("results/logs/infer/*.log")), "inference began", process)
        process.send_signal(signal.SIGINT)  # to Snakemake alone, which ends its jobs
        assert ended(process)[0] != 0
    assert (tmp_path / "results/.lock").read_text() == ""
    assert not list(tmp_path.glob("results/runs/*/samples.json"))
    assert not (tmp_path / "results/report.html").exists()  # who stops a run wants no page of it
    with started(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        (log,) = tmp_path.glob("results/logs/infer/*.log")
        log.unlink()
        until(log.exists, "inference began again", process)
        text = refused(tmp_path, *given)  # a second one in the same folder
        assert f"spdnn: process {process.pid} on {socket.gethostname()} runs the workflow in this folder; wait" in text
        below = psutil.Process(process.pid).children(recursive=True)
        (job,) = (one for one in below if one.cmdline()[1:3] == ["-P", "-m"])
        job = endings.process(job.pid)
        process.kill()
        until(lambda: job.gone, "the job ended with Snakemake")
    case = "radixnet-1024-120.mnist-1024-first-1000.cpu.none.t1"
    text = passed(tmp_path, f"results/records/{case}.json", *given, "count=1000", "repeats=1")
    assert f"spdnn: process {process.pid} on {socket.gethostname()} was killed while it ran the workflow here" in text
    assert set(jobs(text)) - {"total"} == {"infer", "verify", "benchmark"}  # what was whole is kept
    record = records_of(tmp_path)[case]
    assert (record["engine"]["name"], record["threads"]) == ("cpu", 1)
    assert (record["problem"]["official"], record["problem"]["input_count"]) == ("1024-120", 1000)
    assert record["verdict"]["truth"]["kind"] == "official"
    assert not list(tmp_path.glob("results/*/*.safetensors"))  # nor any that the killed run made


def test_a_dry_run_of_the_whole_challenge_writes_nothing(tmp_path, monkeypatch):
    """And tells what it would run on digits; it fetches nothing (tests/runs/workflow/test_decisions.py)."""
    monkeypatch.setenv("SPDNN_MIRROR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "nothing"))
    text = passed(tmp_path, "--dry-run", decided=False)
    assert {rule: count for rule, count in jobs(text).items() if rule.startswith("infer")} == {
        "infer": 13, "infer_ranks": 1,
    }  # fmt: skip
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "neuron=1024"], "config: top level: the key 'neuron' is not known; did you mean 'neurons'?"),
        (["--groups", "infer=a", "verify=a"], "rule infer is timed, and no job runs beside a timed one"),
        (["--configfile", "twice.yaml"], "twice.yaml: line 2: the key 'count' stands twice, first in line 1"),
        pytest.param(["--workflow-profile", ROOT / "workflow/profiles/slurm"],
                     "executor slurm: Slurm is not installed here, for there is no sbatch; ", marks=full),
    ],
)  # fmt: skip
def test_a_run_that_is_refused_makes_nothing(tmp_path, monkeypatch, arguments, sentence):
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "which"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", f"{BIN}:{tmp_path / 'bin'}")
    (tmp_path / "twice.yaml").write_text("count: 5\ncount: 6\n")
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(tmp_path, *PRESET, *arguments, decided=False)
    assert not [path for path in tmp_path.glob("results/**/*") if path.is_file()]


def test_a_number_is_the_same_in_a_file_and_on_the_command_line(tmp_path):
    (tmp_path / "c.yaml").write_text("count: 0100\ninputs: digits\nneurons: 1024\nlayers: 0120\n")
    words = ["--dry-run", "--configfile", tmp_path / "c.yaml"]
    assert "first-100" in passed(tmp_path, *words)
    assert "first-50" in passed(tmp_path, *words, "--config", "count=050")


def test_environments_that_a_profile_asks_for_are_not_made(tmp_path, monkeypatch):
    """Of a user's own, for other workflows; conda is not installed here."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.yaml").write_text("software-deployment-method: [conda, apptainer]\n")
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(tmp_path / "mine"))
    text = passed(tmp_path, "results/inputs/digits-1024.safetensors")
    assert "spdnn: software-deployment-method apptainer conda: no rule names an environment or a container" in text


def test_a_download_that_fails_says_what_to_do_instead(tmp_path, monkeypatch, capsys):
    """As a rule's script and as a command do it."""

    def unreachable(name, *_, **__):
        raise SpdnnError(f"{name} could not be fetched")

    for user in ("fetch", "mnist"):
        monkeypatch.setattr(f"spdnn.formats.{user}.fetch", unreachable)
    for file in ("dlmc/dlmc.tar.gz", "mnist/train-images-idx3-ubyte.gz"):
        wildcards = SimpleNamespace(file=file)
        given = {"snakemake": SimpleNamespace(log=[tmp_path / "log"], wildcards=wildcards)}
        with pytest.raises(SystemExit):
            exec((ROOT / "workflow/scripts/fetch_file.py").read_text(), given)
        if file.startswith("dlmc"):
            assert "dlmc could not be fetched; give a copy of your own, dlmc.tar.gz" in (tmp_path / "log").read_text()
    told = "mnist-train-images could not be fetched; give its file "
    assert f"{told}(--config mnist=FILE), or take inputs=digits" in (tmp_path / "log").read_text()
    assert main(["challenge", "--neurons", "1024", "--layers", "2", "--no-cache"]) == 1
    assert f"{told}by --mnist, or take digits" in capsys.readouterr().err


# ---- jobs of a cluster, on GPUs that the machine which plans them needs not have ----


@pytest.mark.parametrize("profile", ["slurm", pytest.param("cluster-generic", marks=full)])
def test_jobs_of_a_cluster_ask_for_what_their_cases_need(tmp_path, profile):
    """Strong and weak scaling over GPUs; memory and time as they are estimated."""
    changes = {"neurons": 1024, "layers": 120, "reductions": "all"}
    preset = ROOT / "config/gpus.yaml"
    arguments = ["--workflow-profile", ROOT / "workflow/profiles" / profile, "--configfile", preset, "--dry-run"]
    text = passed(tmp_path, *arguments, "--config", *(f"{key}={value}" for key, value in changes.items()))
    cases = requests(preset.read_text(), **changes)
    several = sum(case.ranks > 1 for case in cases.values())
    assert (jobs(text)["infer"], jobs(text)["infer_ranks"]) == (len(cases) - several, several)
    stages = {"prepare": estimates.prepare, "verify": estimates.verify}
    stages |= dict.fromkeys(("infer", "infer_ranks"), estimates.infer)
    devices = set()
    for rule, job in described(text):
        if rule in stages:
            case = Targets(cases.values()).case(SimpleNamespace(**job))
            need = stages[rule](case, cases.values(), 0)
            assert (job["mem_mb"], job["runtime"]) == (str(need.megabytes), str(need.minutes))
            assert int(job.get("tasks", 1)) == (case.ranks if rule == "infer_ranks" else 1)
        if rule.startswith("infer"):
            devices.add((job.get("tasks", "1"), job["slurm_extra"]))
    assert devices == {
        *((ranks, "--gpus-per-task=1") for ranks in "1248"),  # a rank for each GPU
        *(("1", f"--gpus-per-task={devices}") for devices in "24"),  # the GPUs of one process
    }


def test_the_page_of_gpus_on_a_cluster_shows_what_is_submitted(tmp_path):
    page = (ROOT / "docs/how-to/gpus-on-a-cluster.md").read_text()
    site = re.search(r"^default-resources:\n((?:  .*\n)+)", page, re.MULTILINE)[1]
    shown = re.search(r"-p (\w+) -t (\d+) --mem (\d+) --nodes=(\d) --ntasks=8 .*(--gpus-per-task=\S+)", page).groups()
    arguments = ["--workflow-profile", ROOT / "workflow/profiles/slurm", "--configfile", ROOT / "config/gpus.yaml"]
    arguments += ["--dry-run", "--default-resources", "mem_mb=2000", *site.replace(": ", "=").replace('"', "").split()]
    text = passed(tmp_path, *arguments)
    assert f"{jobs(text)['total']} jobs" in page
    eight = [job for rule, job in described(text) if rule == "infer_ranks" and job["tasks"] == "8"]
    names = ("slurm_partition", "runtime", "mem_mb", "nodes", "slurm_extra")
    assert {tuple(job[name] for name in names) for job in eight} == {shown}
    checks = {(job["tasks"], job["gpus_per_task"]) for rule, job in described(text) if rule == "check_devices"}
    assert checks == {("2", "1"), ("1", "4")}  # of `cuda`, and of `taskgraph-cuda`
    given = ["--config", "engine=taskgraph-cuda", "devices=8", "ranks=1", "cases=[]"]
    assert "config: devices: 8, and a node has 4" in refused(tmp_path, *arguments, *given)


@pytest.mark.parametrize("profile", ["slurm", pytest.param("cluster-generic", marks=full)])
def test_what_a_site_asks_for_is_added_to_what_a_case_needs(tmp_path, profile):
    arguments = ["--workflow-profile", ROOT / "workflow/profiles" / profile, "--dry-run"]
    arguments += ["--default-resources", "slurm_extra='--qos=high'", "gpu_type='a100'", "gpus_per_task=0"]
    arguments += ["--set-resources", "infer:slurm_extra='--exclusive'", "infer_ranks:nodes=2"]
    given = ["reductions=none", "neurons=1024", "layers=120", "ranks=[1,2]", "engine=[cpu,cuda]", "threads=4"]
    text = passed(tmp_path, *arguments, "--config", *given)
    told = {(rule, job["slurm_extra"]) for rule, job in described(text) if "case" in job}
    assert {job["nodes"] for rule, job in described(text) if rule == "infer_ranks"} == {"2"}
    assert {pair for pair in told if pair[0] != "benchmark"} == {
        ("infer", "--exclusive"),
        ("infer", "--gpus-per-task=a100:1 --exclusive"),
        ("infer_ranks", "--qos=high"),
        ("infer_ranks", "--gpus-per-task=a100:1 --qos=high"),
        ("verify", "--qos=high"),
    }


def test_a_job_on_a_node_is_told_its_memory_and_time_and_only_the_engine_looks_for_its_device(tmp_path):
    given = {"engine": "cuda", "reductions": "none", "neurons": 1024, "layers": 120}
    (case,) = requests(**given).values()
    need = estimates.infer(case, [case], 0)
    changes = [f"{key}={value}" for key, value in given.items()]
    text = passed(tmp_path, "--mode", "remote", "--dry-run", "--printshellcmds", "--config", *changes)
    memory, seconds = estimates.allowed_bytes(need.megabytes), estimates.time_limit(need.minutes)
    assert f" --memory {memory} --time-limit {seconds} --network " in text


def test_memory_and_time_that_a_site_sets_grow_with_each_try():
    """A constant in set-resources would be the same at the second try."""
    for name in ("slurm/config.yaml", "cluster-generic/config.yaml", "README.md"):
        text = (ROOT / "workflow/profiles" / name).read_text()
        set_by_rule = re.findall(r"\w+: \{.*\}", text)
        for value in re.findall(r"(?:mem_mb|runtime): ([^,}]+)", " ".join(set_by_rule)):
            assert value.startswith('"attempt * '), (name, value)
        assert set_by_rule or name == "README.md"


def test_the_profiles_say_the_same_where_they_can():
    one, other = (
        yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())
        for name in ("slurm", "cluster-generic")
    )
    for key in ("latency-wait", "retries", "keep-going", "rerun-incomplete"):
        assert one[key] == other[key]
    assert one["set-resources"]["infer_ranks"]["mpi"] == other["set-resources"]["infer_ranks"]["mpi"]


# ---- other networks and inputs ----


@full
def test_reductions_ranks_and_schedules_are_compared_in_one_run(copied):
    folder = copied()
    by_what = [
        "{neurons: 1024, source: unstructured, layers: 3, count: 100, reductions: [all, none]}",
        "{neurons: 1024, count: 500, threads: 1, ranks: [1, 2, 4], partition: [static, rebalanced]}",
        "{neurons: 1024, engine: taskgraph, count: 2000, reductions: dead, schedule: [stream, pipeline], devices: 2,"
        " device_memory: 30000000}",
    ]
    few = ["repeats=2", "oracle_edges=1000000", "seed=7"]  # of which the oracle draws some inputs
    passed(folder, *PRESET, "--until", "benchmark", "--config", "neurons=[]", networks(*by_what), *few)
    records = {name.rpartition(".")[0]: one for name, one in records_of(folder).items() if name not in CASES}
    assert {record["verdict"]["truth"]["seed"] for record in records.values()} == {7}

    case = "unstructured-1024-3.digits-1024-first-100.cpu.{}.t2"  # in which there is nothing to find
    reduced, plain = (records.pop(case.format(reductions)) for reductions in ("all", "none"))
    assert [record["reductions"]["requested"] for record in (reduced, plain)] == [["dead", "inputs", "neurons"], []]
    assert reduced["result"]["digest"] == plain["result"]["digest"]
    found = reduced["reductions"]["found"]
    assert found["neurons"]["neurons_left"] == found["neurons"]["neurons"]
    assert found["inputs"]["rows_merged"] == 0

    case = "radixnet-1024-120.digits-1024-first-2000.taskgraph.dead.t2"
    for schedule in ("stream", "pipeline"):
        notes = records.pop(f"{case}.{schedule}-d2")["engine"]["notes"]
        assert (notes["schedule"], notes["devices"]) == (schedule, 2)
        assert max(notes["memory_bytes"]) <= notes["device_memory_bytes"] == 30_000_000

    one = records.pop("radixnet-1024-120.digits-1024-first-500.cpu.all.t1")
    assert {name.rpartition(".")[2] for name in records} == {
        f"r{ranks}-{partition}" for ranks in (2, 4) for partition in ("static", "rebalanced")
    }
    for record in records.values():
        per_rank = record["distribution"]["per_rank"]
        assert len(per_rank) == record["ranks"]
        assert sum(rank["inputs"] for rank in per_rank) == record["problem"]["input_count"] == 500
        assert record["result"]["categories_sha256"] == one["result"]["categories_sha256"]


@full
@pytest.mark.needs("mnist")
def test_every_rung_of_the_ladder_is_verified_and_drawn(tmp_path, mnist_file, monkeypatch):
    """Official inputs: the oracle cannot judge the rung that is the oracle. And a whole official problem beside it."""
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    (tmp_path / "whole.yaml").write_text("cases: [{count: null, engine: cpu}]\n")
    files = [ROOT / "config/ladder.yaml", tmp_path / "whole.yaml"]
    passed(tmp_path, "--configfile", *files, "--config", "count=500", "repeats=1")
    records = records_of(tmp_path)
    record = records.pop("radixnet-1024-120.mnist-1024.cpu.all.t2")
    assert (record["problem"]["official"], record["verdict"]["truth"]["kind"]) == ("1024-120", "official")
    assert record["result"]["categories"] == 1812
    engines = sorted(record["engine"]["name"] for record in records.values())
    assert engines == ["cpu", "csr", "reference", *["tiled"] * 4]
    assert len({record["result"]["categories_sha256"] for record in records.values()}) == 1
    assert "One step at a time" in (tmp_path / "results/report.html").read_text()


def test_every_rule_runs_again_with_its_code():
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for rule in re.split(r"\n *rule ", path.read_text())[1:]:
            name = rule.split(":")[0]
            own = {"fetch_file": "content=lambda", "check_devices": "code="}.get(name, "trigger=")
            assert own in rule, f"{path.name}: rule {name} depends on no code"
            if name == "infer":  # what it starts, on every rank of infer_ranks too, is the command itself
                assert "INFER" in rule.split("shell:")[1]
                assert "use rule infer as infer_ranks" in rule
                assert "RULES.inference(ranks=True)" in rule.split("use rule")[1]
            elif name == "check_devices":
                assert "CHECK" in rule.split("shell:")[1]
            else:
                assert re.search(rf'script:\n +"../scripts/{name}.py"', rule)
