"""What makes jobs run again: each setting, file and part of the code that they hang on, and nothing else."""

import fcntl
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from spdnn.core.errors import Unavailable
from spdnn.core.request import RunRequest
from spdnn.runs.workflow import triggers
from spdnn.runs.workflow.targets import Targets
from spdnn.runs.workflow.triggers import FOLDER, Triggers

CHALLENGE = {"neurons": 1024, "layers": 120, "inputs": "mnist", "mnist": "images", "threads": 2}
OWN = {"network": "layers", "inputs": "x.npy", "truth": "truth", "last": "relu", "rows": "inputs"}
LISTED = OWN | {"network": "list.txt", "truth": None}
WHOLE = {"peers": {"widths": [1024]}, "ops": {"dlmc": "dlmc"}, "report": {"repeats": 3}, "others": ["other.json"]}


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / "layers").mkdir()
    for k in (1, 2):
        sp.save_npz(f"layers/{k}.npz", sp.eye_array(k))
    Path("list.txt").write_text("layers/1.npz\nlayers/2.npz\n")
    np.save("x.npy", np.eye(2))
    for name in ("truth", "images", "dlmc", "other.json"):
        Path(name).write_text("1")
    return tmp_path


def files(*requests, whole=WHOLE, **state):
    """{name: path} of the triggers of all jobs of these requests, as the main process of a run has them."""
    state = {"is_main_process": True, "dryrun": False, "executor_plugin": "local", "scheduler": None} | state
    alone = state.pop("alone", True)
    cases = [RunRequest.of(request) for request in requests or (CHALLENGE, OWN, LISTED)]
    made = Triggers(SimpleNamespace(**state), alone, Targets(cases), "config", whole)
    names = {"networks": "network_name", "inputs": "inputs_name", "prepared": "prepared_name"}
    jobs = {(rule, getattr(case, names.get(rule, "name"))) for case in cases
            for rule in (*names, "infer", "verify", "benchmark")}  # fmt: skip
    found = {f"{rule}/{name}": made.of(rule)([name]) for rule, name in jobs}
    return found | {rule: made.of(rule)([]) for rule in ("peers", "ops", "report")}


def changed(change, *requests, **state):
    """The rules whose files a change changes."""
    before = {name: Path(path).read_text() for name, path in files().items()}
    change()
    after = {name: Path(path).read_text() for name, path in files(*requests, **state).items()}
    return {name.split("/")[0] for name in after if after[name] != before.get(name, after[name])}


def written(name, text="2"):
    return lambda: Path(name).write_text(text)


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("layers/2.npz", {"networks", "infer"}), ("x.npy", {"inputs", "infer"}), ("images", {"inputs", "infer"}),
        ("truth", {"verify"}), ("dlmc", {"ops"}), ("other.json", {"report"}), ("layers/.2.npz", set()),
    ],
)  # fmt: skip
def test_a_file_of_another_content_counts_also_with_an_old_time(name, rules):
    def change():
        Path(name).write_text("2")
        os.utime(name, (1, 1))

    assert changed(change) == rules


def test_a_list_of_layers_is_one_of_their_files():
    assert changed(written("list.txt", "layers/2.npz\n")) == {"networks", "infer"}


def test_a_setting_that_is_in_no_name_counts():
    for requests in ((CHALLENGE | {"repeats": 7}, OWN, LISTED), (CHALLENGE, OWN | {"repeats": 7}, LISTED)):
        assert changed(lambda: None, *requests) == {"infer", "verify", "benchmark"}


@pytest.mark.parametrize(
    ("key", "value"), [("peers", {}), ("ops", {"dlmc": None}), ("report", {"repeats": 4}), ("others", [])]
)
def test_what_is_of_the_whole_configuration_counts_for_its_rule(key, value):
    assert changed(lambda: None, whole=WHOLE | {key: value}) == {"report" if key == "others" else key}


@pytest.mark.parametrize(
    ("place", "rules"),
    [
        ("core", {"networks", "inputs", "prepared", "infer", "verify", "benchmark", "peers", "ops", "report"}),
        ("engines", {"prepared", "infer", "verify", "benchmark", "peers", "ops", "report"}),
        ("runs/ranks", {"infer", "peers", "ops", "report"}), ("bench", {"peers", "ops"}), ("report", {"report"}),
    ],
)  # fmt: skip
def test_code_counts_for_the_rules_that_run_it(monkeypatch, place, rules):
    whole = triggers.code_digest

    def other(*places, **devices):
        inside = {"runs", "runs/ranks"} if place == "runs/ranks" else {place}
        return whole(*places, **devices) + ("changed" if inside & {*places} else "")

    assert changed(lambda: monkeypatch.setattr(triggers, "code_digest", other)) == rules


def test_a_file_is_written_when_it_changes_and_where_jobs_run(folder):
    before = files()
    assert {*before.values()} == {str(path) for path in FOLDER.rglob("*.json")}
    for path in before.values():
        os.utime(path, (5, 5))
    for state in ({}, {"dryrun": True}, {"alone": False}, {"executor_plugin": None}):
        assert files(**state) == before
    assert {os.stat(path).st_mtime for path in before.values()} == {5}
    # Where nothing runs, or somebody else does, what would change is another file, and new.
    for state in ({"dryrun": True}, {"alone": False}, {"executor_plugin": None}):
        after = files(whole=WHOLE | {"peers": {}}, **state)
        assert {name for name in after if after[name] != before[name]} == {"peers"}
        assert os.stat(after["peers"]).st_mtime > 5
        assert not Path(after["peers"]).is_relative_to(folder)
    assert {os.stat(path).st_mtime for path in before.values()} == {5}
    # A job reads what the main process wrote.
    assert files(whole=WHOLE | {"peers": {}}, is_main_process=False) == before
    assert json.loads(Path(before["peers"]).read_text())["peers"] == WHOLE["peers"]
    files(whole=WHOLE | {"peers": {}})
    assert os.stat(before["peers"]).st_mtime > 5


def test_runs_that_begin_at_the_same_time_leave_the_files_of_the_one_that_has_the_lock():
    def run(repeats):
        cases = [RunRequest.of(OWN | {"repeats": repeats})]
        state = SimpleNamespace(is_main_process=True, dryrun=False, executor_plugin="local", scheduler=None)
        made = Triggers(state, True, Targets(cases), "config", WHOLE)
        return made, lambda: Path(made.of("infer")([cases[0].name]))

    # Both have found no other run. The second writes after the first, which then gets the lock.
    (first, path), (_, other) = run(2), run(3)
    assert path() == other()
    first.settle()
    assert json.loads(path().read_text())["request"]["repeats"] == 2
    # Now it is too late for the second: its run will be refused, also where the first has ended.
    late, other = run(3)
    Path("results/.lock").write_text("process 1 on elsewhere")
    with open("results/.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not other().is_relative_to("results")
    assert json.loads(path().read_text())["request"]["repeats"] == 2
    with pytest.raises(Unavailable, match="start this one again"):
        late.settle()


def test_a_run_that_made_nothing_puts_back_what_it_has_changed():
    before = {name: Path(path).read_text() for name, path in files().items()}
    for path in FOLDER.rglob("*.json"):
        os.utime(path, (5, 5))

    def run():
        state = SimpleNamespace(is_main_process=True, dryrun=False, executor_plugin="local", scheduler=None)
        changed = Triggers(state, True, Targets([RunRequest.of(OWN | {"repeats": 9})]), "config", WHOLE | {"peers": {}})
        name = next(iter(changed.targets.cases))
        return changed, [Path(changed.of("infer")([name])), Path(changed.of("peers")([]))]

    refused, paths = run()
    assert all(path.stat().st_mtime > 5 for path in paths)
    new = FOLDER / "verify" / "new.json"
    refused.before[new], refused.texts[new] = None, "{}"
    new.write_text("{}")
    paths[1].write_text("of a run that began at the same time")
    refused._put_back(os.getpid())
    assert (paths[0].stat().st_mtime, paths[0].read_text()) == (5, before[f"infer/{paths[0].stem}"])
    assert paths[1].read_text() == "of a run that began at the same time"
    assert not new.exists()
    begun, paths = run()
    begun.workflow.scheduler = SimpleNamespace(finished_jobs=1)
    begun._put_back(os.getpid())
    assert json.loads(paths[0].read_text())["request"]["repeats"] == 9
