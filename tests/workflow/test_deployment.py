"""The workflow as the Snakemake workflow catalog and other workflows meet it: its files, and a module from afar."""

import functools
import http.server
import re
import shutil
import sys
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from children import finished

MODULE = """
module spdnn:
    snakefile: "{url}/{snakefile}"
    config: config
    {prefix}
use rule * from spdnn {names}
"""
HANDLERS = """
onstart:
    spdnn.onstart()
onerror:
    spdnn.onerror()
onsuccess:
    spdnn.onsuccess()
"""
ALONE = "import sys; sys.modules['spdnn'] = None; from snakemake.cli import main; main(sys.argv[1:])"  # no spdnn
pytestmark = pytest.mark.xdist_group("workflow")


@pytest.fixture(scope="module")
def served(root):
    """The address of the checkout."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *arguments: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def module(folder, url, prefix="", names="", handlers=HANDLERS, snakefile="workflow/Snakefile"):
    text = MODULE.format(url=url, prefix=prefix, names=names, snakefile=snakefile)
    (folder / "Snakefile").write_text(text + handlers)


def snakemake(folder, *words, program=("-m", "snakemake")):
    return finished([sys.executable, *program, "--directory", folder, "--cores", "2", *words], cwd=folder)


def test_the_catalog_finds_what_it_looks_for(root):
    """https://snakemake.github.io/snakemake-workflow-catalog, "Standardized usage", and Snakemake's own layout."""
    readme = (root / "README.md").read_text().lower()
    assert all(word in readme for word in ("snakemake", "workflow"))
    for path in ("workflow/Snakefile", "config/README.md", "config/config.yaml", "LICENSE", ".test/config/config.yaml"):
        assert (root / path).is_file(), path
    usage = yaml.safe_load((root / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"] == {"conda": False}
    assert "make setup" in usage["mandatory-flags"]["desc"]
    text = "".join(path.read_text() for path in (root / "workflow").rglob("*.smk"))
    assert not any(f"    {word}:" in text for word in ("conda", "container", "envmodules"))


def test_the_container_of_apptainer_has_what_its_build_reads(root, tmp_path):
    """Of a line of %files, Apptainer takes the first word as source and the second as place; it drops others."""
    definition = (root / "envs/spdnn.def").read_text()
    lines = definition.split("%files\n")[1].split("\n%")[0].splitlines()
    for source, place, *dropped in (line.split() for line in lines if line.strip() and "#" not in line):
        assert not dropped
        target = Path(f"{tmp_path}{place}")
        target.parent.mkdir(parents=True, exist_ok=True)
        assert finished(["cp", "-fLr", root / source, f"{tmp_path}{place}"])[0] == 0
    copy = tmp_path / "spdnn"
    assert {path.name for path in tmp_path.iterdir()} == {"spdnn"}
    # pip reads pyproject.toml and all that it names; CMake reads files, and installs others at the end.
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-build-isolation", "--editable", copy]
    status, out, told = finished(pip)
    assert status == 0, out + told
    read = re.findall(r"(?:config|spdnn)/[\w./-]*\w", (root / "CMakeLists.txt").read_text())
    read += re.findall(r"(?:envs|workflow)/[\w./-]*\w", definition.split("%post")[1])
    assert "envs/run.txt" in read
    made = {"spdnn/kernels/_cpu", "spdnn/tables"}  # by the build
    assert [path for path in read if not (copy / path).exists() and path not in made] == []
    words = ["--snakefile", copy / "workflow/Snakefile", "--configfile", copy / "config/smoke.yaml", "--dry-run"]
    assert snakemake(tmp_path, *words)[0] == 0


def test_the_image_of_docker_has_no_environment_and_no_results(root):
    """`COPY . .`: whatever of a checkout is to stay outside is in .dockerignore."""
    patterns = [line for line in (root / ".dockerignore").read_text().split() if not line.startswith("!")]
    outside = {".venv", ".venv-torch", ".venv-3.12", ".git", ".snakemake", "build", "results/records"}
    needed = [path.name for path in root.iterdir() if path.name in ("CMakeLists.txt", "config", "spdnn", "workflow")]
    assert {name for name in (*outside, *needed) if any(fnmatch(name, pattern) for pattern in patterns)} == outside


@pytest.mark.full("workflow")
def test_the_small_configuration_runs_from_its_folder(root, tmp_path):
    shutil.copytree(root / ".test", tmp_path / ".test")
    words = ["--snakefile", root / "workflow/Snakefile", "--configfile", "config/config.yaml"]
    status, out, text = snakemake(tmp_path / ".test", *words)
    assert status == 0, text
    assert out.endswith("report: results/report.html\n")


def test_a_module_from_afar_in_an_environment_with_spdnn(served, root, tmp_path):
    module(tmp_path, served)
    status, out, text = snakemake(tmp_path, "--configfile", root / "config/smoke.yaml")
    assert status == 0, text
    assert out.endswith("report: results/report.html\n")
    assert (tmp_path / "results/cases.json").is_file()


def test_the_checkout_is_a_working_folder_of_snakemake(root, tmp_path):
    """Its own Snakefile, with the default target and profile of workflow/, as those that are found there are used."""
    words = ["--cores", "2", "--directory", tmp_path, "--configfile", "config/smoke.yaml"]
    status, out, text = finished([sys.executable, "-m", "snakemake", *words], cwd=root)
    assert status == 0, text
    assert out.endswith("report: results/report.html\n")
    assert "workflow specific profile profiles/default" in text
    status, out, text = finished([sys.executable, "-m", "snakemake", *words, "--dry-run"], cwd=root)
    assert status == 0
    assert "Nothing to be done" in out + text


def test_its_snakefile_may_be_a_module_too(root, tmp_path):
    module(tmp_path, root, snakefile="Snakefile")
    words = ["--configfile", root / "config/smoke.yaml", "--dry-run"]
    status, out, text = snakemake(tmp_path, *words)
    assert status == 0, text
    assert re.search(r"^all +1$", out + text, re.MULTILINE)


def test_snakemake_without_spdnn_is_told_what_to_do(served, root, tmp_path):
    module(tmp_path, served)
    checkout = ("--snakefile", root / "workflow/Snakefile")
    for words in (["--dry-run"], ["--lint", *checkout], ["--dry-run", *checkout]):
        run = snakemake(tmp_path, *words, program=("-c", ALONE))
        assert run[0] != 0
        assert "clone the repository, run `make setup` there" in run[1] + run[2]
        assert "Traceback" not in run[1] + run[2]


@pytest.mark.parametrize(
    "changes", [{"prefix": 'prefix: "x"'}, {"names": "as other_*"}, {"handlers": MODULE.replace(" spdnn", " again")}]
)
def test_a_module_with_other_names_is_refused(root, tmp_path, changes):
    given = {"url": root, "prefix": "", "names": "", "snakefile": "workflow/Snakefile"}
    changes = {name: text.format(**given) for name, text in changes.items()}
    module(tmp_path, root, **changes)
    status, out, text = snakemake(tmp_path, "--dry-run")
    assert status != 0
    assert "module: rules keep their names and files their places" in out + text
    assert "Traceback" not in out + text


def test_a_workflow_around_a_module_keeps_its_environments(root, tmp_path):
    module(tmp_path, root)
    status, out, text = snakemake(tmp_path, "--dry-run", "--sdm", "conda")
    assert status == 0
    assert "software-deployment-method" not in out + text


def test_a_module_without_handlers_is_warned_of(root, tmp_path):
    said = []
    for handlers in ("", HANDLERS):
        module(tmp_path, root, handlers=handlers)
        said.append("nothing locks the folder" in "".join(snakemake(tmp_path, "--dry-run")[1:]))
    assert said == [True, False]


def test_another_checkout_of_the_same_commit_repeats_nothing(root, tmp_path):
    """Snakemake's trigger `code` is the times of scripts."""
    made = "results/networks/radixnet-1024.safetensors"
    for name in ("one", "two"):
        shutil.copytree(root / "workflow", tmp_path / name / "workflow")
        shutil.copytree(root / "config", tmp_path / name / "config")
        for path in (tmp_path / name / "workflow/scripts").glob("*.py"):
            path.touch()
        words = ["--snakefile", tmp_path / name / "workflow/Snakefile", made]
        status, out, text = snakemake(tmp_path, *words)
        assert status == 0, text
    assert "Nothing to be done" in out + text
