"""The workflow, run for real in a folder of its own: from nothing to the report, again, interrupted, and failing."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spdnn.operation_records import read_operations
from spdnn.records import read_record
from spdnn.report.cases import read_cases

CASE = "radixnet-1024-120.digits-1024-first-3000.cpu.all.t2"
BIN = Path(sys.executable).parent


def command(root, folder, *arguments):
    (folder / "config").exists() or (folder / "config").symlink_to(root / "config")
    return [BIN / "snakemake", "--snakefile", root / "Snakefile", "--directory", folder, "--cores", "2", *arguments]


def snakemake(root, folder, *arguments):
    done = subprocess.run(command(root, folder, *arguments), capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def smoke(root, tmp_path_factory):
    """A folder in which the smoke preset ran."""
    folder = tmp_path_factory.mktemp("smoke")
    status, text = snakemake(root, folder, "--configfile", "config/smoke.yaml")
    assert status == 0, text
    return folder


def test_smoke_from_nothing_to_report(smoke):
    record = read_record(smoke / f"results/records/{CASE}.json")
    assert record["verdict"]["passed"]
    assert record["verdict"]["truth"] == {
        "kind": "oracle", "source": "float64 oracle", "inputs": 3000, "checked": 3000, "seed": None,
    }  # fmt: skip
    assert len(record["samples"]["inference_seconds"]) == 3
    categories = (smoke / f"results/runs/{CASE}/categories.txt").read_text().split()
    assert len(categories) == record["result"]["categories"] > 0
    page = (smoke / "results/report.html").read_text()
    assert "digits" in page
    assert CASE in page
    left = [path for path in (smoke / "results").rglob("*") if path.name.endswith(".part")]
    assert not left


def test_nothing_to_do_the_second_time(root, smoke):
    status, text = snakemake(root, smoke, "--configfile", "config/smoke.yaml")
    assert status == 0
    assert "Nothing to be done" in text


def test_depths_share_networks_and_the_command_of_a_record_reproduces_it(root, smoke):
    record = read_record(smoke / f"results/records/{CASE}.json")
    words = record["environment"]["command"].split()
    assert words[:3] == ["snakemake", "--cores", "2"]
    status, text = snakemake(root, smoke, "--dry-run", *words[3:])
    assert status == 0, text
    status, text = snakemake(
        root, smoke, "--dry-run", "--configfile", "config/smoke.yaml", "--config", "layers=[120,480]"
    )
    assert status == 0, text
    assert "rule infer" in text
    assert "rule make_network" not in text
    assert "rule prepare" not in text
    status, text = snakemake(
        root, smoke, "--dry-run", "--configfile", "config/smoke.yaml", "--config", "ranks=[2,4]", "threads=1"
    )
    assert status == 0, text
    assert re.search(r"^infer_ranks +2$", text, re.MULTILINE)
    assert "rule prepare" not in text


def test_changed_repeats_run_inference_again(root, smoke):
    status, text = snakemake(root, smoke, "--dry-run", "--configfile", "config/smoke.yaml", "--config", "repeats=4")
    assert status == 0
    assert "rule infer" in text
    assert "rule make_inputs" not in text


def test_snakemakes_own_report_has_every_figure_with_its_category_and_caption(root, smoke):
    status, text = snakemake(root, smoke, "--configfile", "config/smoke.yaml", "--report", "snakemake-report.html")
    assert status == 0, text
    page = (smoke / "snakemake-report.html").read_text()
    results, categories = (
        json.JSONDecoder().raw_decode(page.split(f'<script id="{name}">\n    var {name} = ')[1])[0]
        for name in ("results", "categories")
    )
    assert results["results/report.html"]["labels"] == {"page": "verdicts and throughput"}
    figures = {str(path.relative_to(smoke)): path for path in smoke.glob("results/figures/*/*.svg")}
    assert {"results/figures/networks/throughput.svg", "results/figures/times/survivors.svg"} <= set(figures)
    assert set(results) == {"results/report.html", *figures}
    for name, path in figures.items():
        shown, told = results[name], path.with_suffix(".rst").read_text()
        assert name in categories[path.parent.name]["Other"]
        assert shown["labels"] == {"figure": path.stem}
        assert base64.b64decode(shown["data_uri"].split("base64,")[1]) == path.read_bytes()
        caption = html.unescape(re.sub(r"<[^>]+>", "", shown["caption"]))
        assert caption.startswith(told.strip().replace("*", "").replace("\\", ""))
        assert "neurons 1024; layers 120; source formula; inputs digits; count 3000; engines cpu" in caption
        assert "repeats 3. The same figure" in " ".join(caption.split())
        assert "system-message" not in shown["caption"]


def test_the_cases_of_the_configuration_are_written_down(smoke):
    assert read_cases(smoke / "results/cases.json") == [CASE]
    told = json.loads((smoke / "results/cases.json").read_text())
    assert told["command"].endswith("--cores 2 --configfile config/smoke.yaml")
    assert [Path(path).name for path in told["configfiles"]] == ["smoke.yaml"]


def test_a_page_of_the_results_tells_what_is_missing(smoke, tmp_path):
    results = shutil.copytree(smoke / "results", tmp_path / "results")
    for path in (f"records/{CASE}.json", f"runs/{CASE}/verdict.json"):
        (results / path).unlink()
    (results / "records/other.json").write_text(
        (smoke / f"results/records/{CASE}.json").read_text().replace(".t2", ".t3")
    )
    spdnn = [sys.executable, "-m", "spdnn", "report", results, "-o", tmp_path / "page.html"]
    subprocess.run([*spdnn, "--figures", tmp_path / "figures"], check=True, capture_output=True)
    page = (tmp_path / "page.html").read_text()
    assert CASE in page
    assert "1 case missing" in page
    assert (tmp_path / "figures/networks/throughput.png").stat().st_size > 1000
    (results / "cases.json").write_text("[]")
    done = subprocess.run(spdnn, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"spdnn: .*cases\.json: .*\n", done.stderr)


def test_a_failed_verdict_ends_red_without_record(root, tmp_path):
    arguments = ["--configfile", "config/smoke.yaml", "--config", "count=200"]
    status, text = snakemake(root, tmp_path, *arguments, "--until", "infer")
    assert status == 0, text
    (result,) = tmp_path.glob("results/runs/*/result.npz")
    with np.load(result) as stored:
        parts = dict(stored)
    for name in ("alive", "row_sum", "row_min", "row_max"):
        parts[name] = parts[name][:-1]
    np.savez(result, **parts)
    status, text = snakemake(root, tmp_path, *arguments, "--rerun-triggers", "mtime")
    assert status != 0
    assert "the verdict is fail (1 categories of the truth are missing" in text
    assert "results/report.html is of a run that failed: 0 of 1 cases passed verification, 1 failed" in text
    assert not list(tmp_path.glob("results/records/*.json"))
    assert "1 categories of the truth are missing" in (tmp_path / "results/report.html").read_text()
    (verdict,) = tmp_path.glob("results/runs/*/verdict.json")
    assert json.loads(verdict.read_text())["missing"]["count"] == 1


def test_interrupted_and_started_again(root, tmp_path):
    arguments = ["--configfile", "config/smoke.yaml", "--config", "count=20000", "repeats=400"]
    process = subprocess.Popen(command(root, tmp_path, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True, text=True)  # fmt: skip
    deadline = time.monotonic() + 120
    while (
        not list(tmp_path.glob("results/logs/infer/*.log")) and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not list(tmp_path.glob("results/runs/*/samples.json"))
    assert not (tmp_path / "results/report.html").exists()  # who stops a run wants no page of it
    status, text = snakemake(root, tmp_path, *arguments[:3], "count=20000", "repeats=1")
    assert status == 0, text
    assert "rule make_inputs" not in text  # what was whole is kept
    assert list(tmp_path.glob("results/records/*.json"))


@pytest.fixture
def own(tmp_path):
    """A function that writes own.yaml: a small network of one's own for each name, with what else is said of it."""
    import scipy.sparse as sp

    rng = np.random.default_rng(2)
    (tmp_path / "layers").mkdir()  # named like inputs of ours: a name must not decide what is read
    for k in (1, 2):
        sp.save_npz(tmp_path / f"layers/{k}.npz", sp.random_array((30, 30), density=0.3, rng=rng, format="csc"))
    np.save(tmp_path / "x.npy", rng.random((100, 30)).astype(np.float32))

    def configured(**names):
        path = tmp_path / "own.yaml"
        network = "path: layers, layers: 2, inputs: x.npy, bias: -0.1, clip: 32"
        lines = [f"  - {{name: {name}, {network}{more}}}\n" for name, more in names.items()]
        path.write_text("neurons: []\nrepeats: 2\nnetworks:\n" + "".join(lines))
        return path

    return configured


def test_a_network_of_ones_own(root, tmp_path, own):
    status, text = snakemake(root, tmp_path, "--configfile", own(mine=""))
    assert status == 0, text
    record = read_record(tmp_path / "results/records/mine-2.own-mine.cpu.all.t2.json")
    assert record["problem"]["official"] is None
    assert record["problem"]["input_count"] == 100
    words = record["environment"]["command"].split()
    status, text = snakemake(root, tmp_path, "--dry-run", *words[3:])
    assert status == 0, text
    assert "Nothing to be done" in text
    assert "mine-2" in (tmp_path / "results/report.html").read_text()


def test_a_wrong_truth_fails_one_case_and_the_page_has_the_others(root, tmp_path, own):
    """A whole run, one with a case that fails, the first again, and the failed one corrected."""
    (tmp_path / "wrong.txt").write_text("1\n")
    good, doubtful = "good-2.own-good.cpu.all.t2", "doubtful-2.own-doubtful.cpu.all.t2"
    page, figures = tmp_path / "results/report.html", tmp_path / "results/figures"
    status, text = snakemake(root, tmp_path, "--configfile", own(good=""))
    assert status == 0, text
    assert doubtful not in page.read_text()
    assert list(figures.glob("*/*.svg"))

    failing = own(good="", doubtful=", truth: wrong.txt")
    status, text = snakemake(root, tmp_path, "--configfile", failing, "--dry-run")
    assert status == 0, text
    assert read_cases(tmp_path / "results/cases.json") == [good]
    status, text = snakemake(root, tmp_path, "--configfile", failing, "--keep-going")
    assert status == 1
    told = (
        f"spdnn: results/report.html is of a run that failed: 1 of 2 cases passed verification, 1 failed ({doubtful})\n"
    )
    assert told in text
    assert read_cases(tmp_path / "results/cases.json") == [good, doubtful]
    found = page.read_text()
    assert "99 categories are not in the truth" in found
    numbers = re.findall(r"<tr[^>]*>(?:(?!</tr>).)*<data(?:(?!</tr>).)*</tr>", found, re.DOTALL)
    assert any(good in row for row in numbers)
    assert not any(doubtful in row for row in numbers)
    assert not list(tmp_path.glob("results/records/doubtful*"))
    assert not figures.exists()

    # The page is the newest file of all, and must not pass for the one that the first configuration asks for.
    before = own(good="")
    for arguments in ([], ["results/report.html", "--rerun-triggers", "mtime"]):
        status, text = snakemake(root, tmp_path, *arguments, "--dry-run", "--configfile", before)
        assert status == 0, text
        assert re.search(r"^report +1$", text, re.MULTILINE), arguments

    status, text = snakemake(root, tmp_path, "--configfile", own(good="", doubtful=""))
    assert status == 0, text
    found = page.read_text()
    assert "99 categories" not in found
    assert doubtful in found
    assert list(figures.glob("*/*.svg"))


def test_peers_are_compared_when_the_config_asks(root, tmp_path):
    status, text = snakemake(root, tmp_path, "--dry-run", "--configfile", "config/peers.yaml")
    assert status == 0, text
    assert re.search(r"^peers +1$", text, re.MULTILINE)
    (tmp_path / "two.yaml").write_text(
        "peers: {widths: [1024], count: 64, seconds: 1, libraries: [scipy], threads: 2,\n"
        "        network: {neurons: 1024, layers: 2, inputs: digits, count: 100, repeats: 2}}\n"
    )
    arguments = ["--configfile", "config/smoke.yaml", tmp_path / "two.yaml", "--config", "count=200"]
    status, text = snakemake(root, tmp_path, *arguments)
    assert status == 0, text
    records = [read_record(path) for path in sorted(tmp_path.glob("results/peers/*.json"))]
    assert [(record["engine"]["name"], record["problem"]["layers"]) for record in records] == [
        ("cpu", 1), ("scipy", 1), ("cpu", 2), ("cpu", 2), ("scipy", 2),
    ]  # fmt: skip
    assert "Peers in the same run" in (tmp_path / "results/report.html").read_text()
    words = records[0]["environment"]["command"].split()
    status, text = snakemake(root, tmp_path, "--dry-run", *words[3:], "--config", "count=200")
    assert status == 0, text
    assert "Nothing to be done" in text


def test_sparse_operations_alone_make_records_and_a_page(root, tmp_path):
    status, text = snakemake(root, tmp_path, "--dry-run", "--configfile", "config/ops.yaml")
    assert status == 0, text
    assert re.search(r"^ops +1$", text, re.MULTILINE)
    assert "rule infer" not in text
    (tmp_path / "tiny.yaml").write_text(
        "neurons: []\nlayers: []\n"
        "ops: {sets: {a: [90]}, networks: [transformer], phases: [inference], operations: [spmm], models: [],\n"
        "      libraries: [scipy], seconds: 0.01, threads: 2, seed: 0, dlmc: null}\n"
    )
    status, text = snakemake(root, tmp_path, "--configfile", tmp_path / "tiny.yaml")
    assert status == 0, text
    records = read_operations(tmp_path / "results/ops/operations.jsonl")
    assert [record["program"]["name"] for record in records] == ["ours", "scipy"] * 4
    assert {record["problem"]["network"] for record in records} == {"transformer"}
    page = (tmp_path / "results/report.html").read_text()
    assert "Sparse operations for deep learning" in page
    assert "8 operation records, and all passed verification." in page
    words = records[0]["environment"]["command"].split()
    status, text = snakemake(root, tmp_path, "--dry-run", *words[3:])
    assert status == 0, text
    assert "Nothing to be done" in text


def test_unstructured_networks_are_made_and_reductions_find_nothing(root, tmp_path):
    arguments = ["--configfile", "config/unstructured.yaml", "--config", "neurons=1024", "layers=3", "count=100"]
    status, text = snakemake(root, tmp_path, *arguments, "repeats=2")
    assert status == 0, text
    records = [read_record(path) for path in sorted(tmp_path.glob("results/records/*.json"))]
    assert [record["reductions"]["requested"] for record in records] == [["dead", "inputs", "neurons"], []]
    assert records[0]["result"]["digests"] == records[1]["result"]["digests"]
    found = records[0]["reductions"]["found"]
    assert found["neurons"]["neurons_left"] == found["neurons"]["neurons"]
    assert found["inputs"]["rows_merged"] == 0


def test_one_two_and_four_ranks_from_nothing_to_report(root, tmp_path):
    arguments = ["--configfile", "config/smoke.yaml", "--config", "count=500", "threads=1", "ranks=[1,2,4]"]
    status, text = snakemake(root, tmp_path, *arguments, "partition=[static,rebalanced]")
    assert status == 0, text
    records = {path.stem: read_record(path) for path in tmp_path.glob("results/records/*.json")}
    one = records.pop("radixnet-1024-120.digits-1024-first-500.cpu.all.t1")
    assert one["ranks"] == 1
    assert "distribution" not in one
    assert len(records) == 4
    for name, record in records.items():
        distribution = record["distribution"]
        assert name.endswith(f".cpu.all.t1.r{record['ranks']}-{distribution['partition']}")
        assert len(distribution["per_rank"]) == record["ranks"]
        assert sum(rank["inputs"] for rank in distribution["per_rank"]) == record["problem"]["input_count"] == 500
        assert record["result"]["categories_sha256"] == one["result"]["categories_sha256"]
        assert len(record["samples"]["inference_seconds"]) == 3
    words = record["environment"]["command"].split()
    status, text = snakemake(root, tmp_path, "--dry-run", *words[3:])
    assert status == 0, text
    assert "Nothing to be done" in text
    assert name in (tmp_path / "results/report.html").read_text()


def test_the_command_of_a_weak_record_counts_by_ranks_again(root, tmp_path):
    arguments = ["--configfile", "config/smoke.yaml", "--config", "count=null", "inputs_per_rank=100", "ranks=[2]"]
    status, text = snakemake(root, tmp_path, *arguments, "threads=1", "repeats=1", "partition=cyclic")
    assert status == 0, text
    (record,) = [read_record(path) for path in tmp_path.glob("results/records/*.json")]
    assert record["problem"]["input_count"] == 200
    assert record["distribution"]["partition"] == "cyclic"
    words = record["environment"]["command"].split()
    assert {"ranks=2", "partition=cyclic", "inputs_per_rank=100", "count=null"} < set(words)
    status, text = snakemake(root, tmp_path, "--dry-run", *words[3:])
    assert status == 0, text
    assert "Nothing to be done" in text


def test_ranks_that_never_met_have_no_record(root, tmp_path, launcher):
    """As when the launcher is of another MPI than mpi4py: every process is then a run of one rank."""
    status, text = snakemake(root, tmp_path, "--configfile", "config/smoke.yaml", *launcher('shift 3; exec "$@"'))
    assert status != 0
    assert "measured on 1 ranks, and the case has 2" in text
    assert not list(tmp_path.glob("results/records/*.json"))


@pytest.mark.needs("mnist")
def test_every_rung_of_the_ladder_is_verified_and_drawn(root, tmp_path, mnist_file, monkeypatch):
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    status, text = snakemake(root, tmp_path, "--configfile", "config/ladder.yaml", "--config", "count=500", "repeats=1")
    assert status == 0, text
    records = [read_record(path) for path in sorted(tmp_path.glob("results/records/*.json"))]
    assert sorted(record["engine"]["name"] for record in records) == ["cpu", "csr", "reference", *["tiled"] * 4]
    assert len({record["result"]["categories_sha256"] for record in records}) == 1
    assert "One step at a time" in (tmp_path / "results/report.html").read_text()


@pytest.mark.needs("mnist")
def test_schedules_are_compared_in_one_run(root, tmp_path, mnist_file, monkeypatch):
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    arguments = ["--configfile", "config/schedules.yaml", "--config", "neurons=1024", "count=2000"]
    arguments += ["reductions=dead", "schedules=[stream,pipeline]", "devices=2", "device_memory=30000000", "repeats=1"]
    status, text = snakemake(root, tmp_path, *arguments)
    assert status == 0, text
    records = {path.stem: read_record(path) for path in tmp_path.glob("results/records/*.json")}
    case = "radixnet-1024-120.mnist-1024-first-2000.taskgraph.dead.t2"
    assert set(records) == {f"{case}.{schedule}-d2" for schedule in ("stream", "pipeline")}
    for name, record in records.items():
        notes = record["engine"]["notes"]
        assert name.endswith(f".{notes['schedule']}-d{notes['devices']}")
        assert max(notes["memory_bytes"]) <= notes["device_memory_bytes"] == 30_000_000
    status, text = snakemake(root, tmp_path, "--dry-run", *record["environment"]["command"].split()[3:])
    assert status == 0, text
    assert "Nothing to be done" in text


@pytest.mark.needs("mnist")
def test_mnist_from_the_mirror(root, tmp_path, mnist_file, monkeypatch):
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    status, text = snakemake(root, tmp_path, "--config", "neurons=1024", "layers=120", "inputs=mnist", "repeats=1")
    assert status == 0, text
    record = read_record(tmp_path / "results/records/radixnet-1024-120.mnist-1024.cpu.all.t2.json")
    assert record["problem"]["official"] == "1024-120"
    assert record["result"]["categories"] == 1812


@pytest.mark.parametrize(
    ("preset", "arguments", "jobs"),
    [("config", [], 4), ("challenge", [], 12), ("config", ["neurons=65536", "layers=1920", "inputs=mnist"], 1),
     ("config", ["source=official", "inputs=official", "neurons=[1024]", "layers=120"], 1)],
)  # fmt: skip
def test_dry_runs(root, tmp_path, preset, arguments, jobs):
    status, text = snakemake(
        root, tmp_path, "--dry-run", "--configfile", f"config/{preset}.yaml", "--config", "repeats=1", *arguments
    )
    assert status == 0, text
    assert re.search(rf"^infer +{jobs}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("preset", "jobs", "counts"),
    [("strong", {"prepare": 4, "infer": 4, "infer_ranks": 36, "benchmark": 40}, set()),
     ("weak", {"prepare": 2, "infer": 2, "infer_ranks": 12, "benchmark": 14}, {"2 15000", "4 30000", "8 60000"})],
)  # fmt: skip
def test_dry_runs_of_scaling(root, tmp_path, preset, jobs, counts):
    status, text = snakemake(root, tmp_path, "--dry-run", "-p", "--configfile", f"config/{preset}.yaml")
    assert status == 0, text
    for rule, number in jobs.items():
        assert re.search(rf"^{rule} +{number}$", text, re.MULTILINE), rule
    assert {" ".join(found) for found in re.findall(r" -n (\d+) .* --count (\d+) ", text)} == counts


@pytest.fixture
def launcher(tmp_path):
    """A function that makes a stand-in for mpiexec of some lines of shell, and the arguments that name it."""

    def make(*lines):
        path = tmp_path / "launcher"
        path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
        path.chmod(0o755)
        return ["--set-resources", f'infer_ranks:mpi="{path} --mpi=pmi2"', "--config", "count=200", "ranks=2"]

    return make


@pytest.mark.parametrize(
    ("lines", "told", "untold"),
    [
        (['echo "$@"', "echo 'spdnn: net.h5: no rank can read it' >&2", "exit 3"], r"spdnn: net\.h5: no rank", "pmi2"),
        (["echo 'spdnn: warning: slow'", "seq 100 130", "echo no host is left", "exit 3"], "no host is left", "100$"),
    ],
)
def test_what_stops_several_ranks_is_on_the_terminal_and_in_the_log(root, tmp_path, launcher, lines, told, untold):
    status, text = snakemake(root, tmp_path, "--configfile", "config/smoke.yaml", *launcher(*lines))
    assert status != 0
    assert re.search(f"^{told}", text, re.MULTILINE)
    (log,) = tmp_path.glob("results/logs/infer_ranks/*.log")
    assert re.search(f"^{told}", log.read_text(), re.MULTILINE)
    assert not re.search(f"^[^ ]*{untold}", text, re.MULTILINE)
    assert not list(tmp_path.glob("results/runs/*/*"))


def test_a_launcher_of_its_own_is_given_the_ranks_and_the_case(root, tmp_path, launcher):
    status, _ = snakemake(root, tmp_path, "--configfile", "config/smoke.yaml", *launcher('echo "$@"; exit 3'))
    assert status != 0
    (log,) = tmp_path.glob("results/logs/infer_ranks/*.log")
    words = log.read_text().split()
    assert words[:3] == ["--mpi=pmi2", "-n", "2"]
    assert words[4:7] == ["-m", "spdnn", "infer"]
    given = dict(zip(words[7::2], words[8::2], strict=True))
    assert given["--count"] == "200"
    assert (given["--layers"], given["--threads"], given["--repeats"]) == ("120", "2", "3")
    assert (given["--engine"], given["--reductions"], given["--partition"]) == ("cpu", "all", "rebalanced")
    assert "--memory" not in given


def test_a_mistake_in_the_config_is_one_line(root, tmp_path):
    status, text = snakemake(root, tmp_path, "--config", "neuron=1024")
    assert status != 0
    assert "config: top level: the key 'neuron' is not known; did you mean 'neurons'?" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()


def test_a_mistake_of_a_user_in_a_rule_is_one_sentence(root, tmp_path):
    status, text = snakemake(
        root, tmp_path, "--config", "neurons=1024", "layers=120", "inputs=mnist", "fetch={mnist: nowhere}"
    )
    assert status != 0
    assert "nowhere" in text
    (tmp_path / "x.npy").write_text("not an array")
    (tmp_path / "own.yaml").write_text(
        "neurons: []\nnetworks:\n  - {name: mine, path: x.npy, layers: 2, inputs: x.npy}\n"
    )
    status, text = snakemake(root, tmp_path, "--configfile", tmp_path / "own.yaml")
    assert status != 0
    assert re.search(r"^spdnn: x\.npy: ", text, re.MULTILINE)
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("engines=warp", "engine 'warp' is not known: it must be one of cpu"),
        ("engines=csr reductions=neurons", "'neurons' is not offered"),
    ],
)
def test_engines_and_reductions_are_checked_before_anything_runs(root, tmp_path, setting, sentence):
    status, text = snakemake(root, tmp_path, "--dry-run", "--config", *setting.split())
    assert status != 0
    assert sentence in text
    assert "Traceback" not in text


@pytest.fixture
def without_gpu(tmp_path, monkeypatch):
    """No NVIDIA driver in any process that is started here, also on a machine that has one."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "from spdnn.kernels.cuda import driver\ndriver.DRIVER = 'libcuda-that-is-not-here.so'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hidden))


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
@pytest.mark.parametrize("name", ["cuda", "cuda-csr", "cusparse"])
def test_without_a_gpu_its_engines_are_refused_at_the_door(root, tmp_path, without_gpu, name, arguments):
    reductions = "reductions=none"
    status, text = snakemake(root, tmp_path, *arguments, "--config", f"engines={name}", reductions, "neurons=1024")
    assert status != 0
    sentence = rf"engine {name} cannot run here: .*(cupy is not installed|driver is not installed here).*"
    assert len(re.findall(sentence, text)) == 1
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("profile", ["slurm", "cluster-generic"])
def test_with_a_cluster_the_jobs_are_the_ones_that_need_a_gpu(root, tmp_path, without_gpu, profile):
    arguments = ["--workflow-profile", root / "workflow/profiles" / profile, "--dry-run"]
    settings = ["engines=[cuda,cusparse]", "reductions=none", "neurons=1024", "layers=120"]
    status, text = snakemake(root, tmp_path, *arguments, "--config", *settings)
    assert status == 0, text
    assert re.search(r"^infer +2$", text, re.MULTILINE)


def test_of_a_cluster_only_the_job_that_runs_the_engine_asks_for_its_device(root, tmp_path, without_gpu):
    """As a node does it: prepare is made without a GPU, and infer ends in one sentence."""
    chosen = ["--configfile", "config/smoke.yaml", "--config", "engines=cuda", "count=200", "--mode", "remote"]
    chosen += ["--shared-fs-usage", "input-output", "persistence", "sources", "source-cache", "software-deployment"]
    for rule, right in (("make_network", True), ("make_inputs", True), ("prepare", True), ("infer", False)):
        status, text = snakemake(root, tmp_path, *chosen, "--until", rule)
        assert (status == 0) == right, text
    assert "engine cuda cannot run here" in text
    assert list(tmp_path.glob("results/prepared/*.cuda.all.h5"))
    assert not list(tmp_path.glob("results/runs/*/*"))


def test_every_rule_carries_the_digest_of_its_code(root):
    for path in sorted((root / "workflow/rules").glob("*.smk")):
        for rule in path.read_text().split("\nrule ")[1:]:
            assert "code=" in rule, f"{path.name}: rule {rule.split(':')[0]} does not depend on its code"
            name = rule.split(":")[0]
            if name == "infer_ranks":  # what it starts on every rank is the command itself
                assert "spdnn.distributed.run" in rule
                assert "-m spdnn infer" in rule.split("shell:")[1]
            else:
                assert f'script:\n        "../scripts/{name}.py"' in rule
