"""The workflow's configuration: presets fit the schema, mistakes are one line."""

import re
from dataclasses import fields

import pytest
import yaml
from refusals import refuses

from spdnn.core import challenge
from spdnn.core.fields import descriptions
from spdnn.core.request import FILE_FIELDS, RunRequest
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.runs.workflow import config
from spdnn.runs.workflow.decisions import Decisions, own_cases

OWN = {"network": "net.safetensors", "inputs": "x.npy"}


@pytest.fixture
def schema(root):
    return root / "workflow/schemas/config.schema.yaml"


@pytest.fixture
def default(root):
    return yaml.safe_load((root / "config/config.yaml").read_text())


@pytest.fixture
def checked(default, schema):
    """A function: the default configuration with these changes, checked."""
    return lambda change: config.check(own_cases(default, change), schema)


def requests(checked, inputs="digits"):
    """Those of a checked configuration, for two cores and these inputs where it leaves them open."""
    return config.requests(checked, Decisions(inputs=inputs, cores=2))


def test_the_default_gives_every_key_of_the_file_and_no_other(default, schema):
    rules = config.schema(schema)
    assert set(rules["required"]) <= set(default) <= set(rules["properties"])
    assert set(config.keys_of_cases()) - set(FILE_FIELDS) <= set(rules["properties"])
    assert all(rule.get("description") for rule in rules["properties"].values())


def test_a_field_of_a_request_is_a_key_with_its_description(schema):
    """Whatever is declared as a field or as a setting is a key of the configuration, and of each of its cases."""
    properties = config.schema(schema)["properties"]
    declared = {RunRequest: config.FIELDS, TaskgraphSettings: [field.name for field in fields(TaskgraphSettings)]}
    for kind, names in declared.items():
        for name in names:
            item = properties["cases"]["items"]["properties"][name]
            assert item["description"].startswith(descriptions(kind)[name].rstrip("."))
            assert (name in properties) == (name not in FILE_FIELDS)


PRESETS = {
    "config": 17, "smoke": 1, "like-for-like": 12, "peers": 1, "strong": 40, "weak": 14,
    "unstructured": 8, "schedules": 16, "ops": 0, "ladder": 7, "ladder-cuda": 9, "gpus": 14,
}  # fmt: skip


def test_presets_and_how_many_cases_they_have(root, checked):
    assert {path.stem for path in (root / "config").glob("*.yaml")} == set(PRESETS)
    for preset, cases in PRESETS.items():
        given = yaml.safe_load((root / f"config/{preset}.yaml").read_text())
        found = requests(checked({} if preset == "config" else given), "mnist")
        assert len(found) == cases, preset
        for case in found:
            parse_reductions(case.reductions, engine(case.engine, usable=False).offers)
        if preset in ("config", "like-for-like"):
            problems = {(problem.neurons, problem.layers) for problem in challenge.PROBLEMS}
            assert {(case.neurons, case.layers) for case in found} == problems
        if preset == "weak":
            assert {(case.ranks, case.count) for case in found} == {(ranks, 7500 * ranks) for ranks in (1, 2, 4, 8)}


OPS = {"sets": {"a": [90]}, "networks": None, "phases": ["inference"], "operations": ["spmm"], "models": [],
       "libraries": "auto", "seconds": 1, "threads": 2, "seed": 0, "dlmc": None}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sets": {}}, "ops.sets: {} is not allowed; problem sets, a "),
        ({"sets": {"d": None}}, "ops.sets: the key 'd' is not known"),
        ({"sets": {"a": [100]}}, "ops.sets.a: "),
        ({"sets": {"a": []}}, "ops.sets.a: "),
        ({"networks": []}, "ops.networks: [] is not allowed; networks of the sets"),
        ({"phases": ["test"]}, "ops.phases.0: 'test' is not allowed; inference or training"),
        ({"operations": ["gemm"]}, "ops.operations.0: 'gemm' is not allowed; spmm or sddmm"),
        ({"models": ["bert"]}, "ops.models.0: 'bert' is not allowed; transformer-P or mobilenet-P"),
        ({"libraries": "mkl"}, "ops.libraries: 'mkl' is not allowed; auto (all that are installed)"),
        ({"seconds": 0}, "ops.seconds: 0 is not allowed; seconds of rounds on each problem"),
        ({"threads": 0}, "ops.threads: 0 is not allowed; from 1 to 1024"),
        ({"seed": -1}, "ops.seed: -1 is not allowed; seed of what is drawn"),
        ({"dlmc": ""}, "ops.dlmc: '' is not allowed"),
        ({"sample": 0}, "ops.sample: 0 is not allowed; matrices drawn from that copy"),
        ({"second": 1}, "ops: the key 'second' is not known; did you mean 'seconds'?"),
    ],
)
def test_what_ops_may_not_be(checked, change, sentence):
    refuses(re.escape(sentence), checked, {"ops": OPS | change})


@pytest.mark.parametrize(
    "change", [{"engine": "cpu\n"}, {"reductions": "all\n"}, {"ops": OPS | {"models": ["transformer-small\n"]}}]
)
def test_a_name_that_a_shell_would_split_is_refused(checked, change):
    refuses(r"^config: [\w.]+: .* is not allowed; [^\n]*$", checked, change)


def test_ops_need_no_network(checked):
    nothing = {"neurons": [], "layers": []}
    assert requests(checked(nothing | {"ops": OPS})) == []
    for empty in (nothing, {"neurons": []}):
        refuses("nothing to run", requests, checked(empty))
    assert checked({"ops": "null"})["ops"] is None


def test_scalars_stand_for_lists_and_cases_are_every_combination(checked):
    found = checked({"neurons": 65536, "layers": 1920, "inputs": "mnist", "threads": [1, 2]})
    assert [case.name for case in requests(found)] == [
        f"radixnet-65536-1920.mnist-65536.cpu.all.t{threads}" for threads in (1, 2)
    ]


def test_nulls_and_lists_on_the_command_line(checked):
    found = checked({"count": "null", "memory": "none", "layers": ["120", "480"], "inputs_per_rank": "null"})
    assert (found["count"], found["memory"], found["layers"]) == ([None], [None], [120, 480])
    assert found["inputs_per_rank"] is None
    whole = checked({"repeats": 2.0, "layers": [5.0]})
    assert [type(number) for number in (*whole["repeats"], *whole["layers"])] == [int, int]
    own = OWN | {"bias": "-0.1", "clip": "32", "layers": "3"}  # as Snakemake gives what is inside of a value
    found = checked({"cases": [own], "oracle_edges": "1e9", "seed": "7", "neurons": []})
    (case,) = requests(found)
    assert (case.bias, case.clip, case.layers, case.oracle_edges, case.seed) == (-0.1, 32, 3, 1e9, 7)


def test_ranks_run_with_every_partition_and_one_rank_once(checked):
    change = {"neurons": 1024, "layers": 120, "ranks": [1, 2], "partition": ["static", "cyclic"], "count": 100}
    found = requests(checked(change))
    assert [case.name for case in found] == [
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2",
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2.r2-static",
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2.r2-cyclic",
    ]
    assert [(case.ranks, case.partition) for case in found] == [(1, "rebalanced"), (2, "static"), (2, "cyclic")]
    assert len({case.prepared_name for case in found}) == 1


def test_items_of_cases_are_changes_of_the_configuration(checked):
    change = {"neurons": 1024, "layers": [120, 480], "ladder": [{"engine": "csr", "reductions": "none"}]}
    items = [
        {"neurons": 4096, "layers": 120, "inputs_per_rank": "50", "ranks": ["1", 2], "source": "unstructured"},
        {"engine": "cpu", "reductions": ["dead", "none"], "layers": 120, "threads": 1},
        OWN | {"engine": "spgemm"},
        {"layers": 120},  # which the configuration has
    ]
    change["count"] = 9
    plain, whole = requests(checked(change)), requests(checked(change | {"cases": items}))
    assert whole[: len(plain)] == plain
    *others, own = whole[len(plain) :]
    assert (own.network, own.inputs, own.engine, own.layers, own.count) == (
        "net.safetensors",
        "x.npy",
        "spgemm",
        None,
        9,
    )
    assert [case.name for case in others] == [
        "unstructured-4096-120.digits-4096-first-50.csr.none.t2",
        "unstructured-4096-120.digits-4096-first-100.csr.none.t2.r2-rebalanced",
        "radixnet-1024-120.digits-1024-first-9.cpu.dead.t1",
        "radixnet-1024-120.digits-1024-first-9.cpu.none.t1",
    ]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ({}, r"cases\.0: \{\} is not allowed; a change of this configuration"),
        ({"engines": "cpu"}, r"cases\.0: the key 'engines' is not known; did you mean 'engine'"),
        ({"neurons": 0}, r"cases\.0\.neurons: 0 is not allowed; neurons per layer"),
        ({"neurons": 5}, "5 neurons have no official bias"),
        ({"network": "net.safetensors"}, "cases: net.safetensors: a network file needs a file of inputs, not digits"),
        (OWN | {"source": "official"}, "source 'official' does not go with a network file"),
        ({"count": 5, "inputs_per_rank": 5}, "inputs_per_rank: 5 is not allowed with count: 5"),
        ({"engine": "taskgraph", "devices": 3}, "devices: 3 devices of 2 threads"),
        ({"engine": "taskgraph", "repeats": 7}, "cases: two cases are named radixnet-1024-120"),
    ],
)
def test_what_an_item_of_cases_may_not_be(checked, item, sentence):
    change = {"engine": ["cpu", "taskgraph"], "neurons": 1024, "layers": 120, "cases": [item]}
    refuses(f"^config: {sentence}", lambda: requests(checked(change)))


def test_ranks_multiply_everything_else(checked):
    change = {"inputs": ["digits", "mnist"], "reductions": ["all", "none"], "threads": [1, 2], "ranks": [1, 2, 4]}
    change |= {
        "neurons": [1024, 4096],
        "layers": [120, 480],
        "partition": ["static", "cyclic", "rebalanced"],
        "cases": [OWN],
    }
    found = requests(checked(change))
    problems = 2 * 2 * 2 + 1  # widths, depths, inputs; a network of one's own
    assert len(found) == problems * 2 * 2 * (1 + 2 * 3) == len({case.name for case in found})


def test_network_files(checked):
    found = checked({"neurons": [], "cases": [OWN | {"reductions": "dead,inputs", "bias": [0.5, -1], "clip": "none"}]})
    (case,) = requests(found)
    assert (case.network, case.bias, case.clip, case.reductions) == (
        "net.safetensors",
        [0.5, -1],
        "none",
        "dead,inputs",
    )
    assert case.name.startswith("net-")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"neuron": 3}, "top level: the key 'neuron' is not known; did you mean 'neurons'?"),
        ({"neurons": [1000]}, "1000 neurons have no official bias"),
        ({"layers": 0}, "layers: 0 is not allowed; number of layers to run"),
        ({"repeats": "many"}, "repeats: 'many' is not allowed; number of timed repeats"),
        ({"oracle_edges": -1}, "oracle_edges: -1 is not allowed; largest number of edges"),
        ({"fetch": {}}, "top level: the key 'fetch' is not known"),
        ({"ranks": 0}, "ranks: 0 is not allowed; number of MPI ranks; 1 runs without MPI"),
        ({"rank": 2}, "top level: the key 'rank' is not known; did you mean 'ranks'?"),
        ({"partition": "blocks"}, "partition: 'blocks' is not allowed; assignment of inputs to the ranks"),
        ({"inputs_per_rank": 0}, "inputs_per_rank: 0 is not allowed; weak scaling, inputs for each rank"),
        (
            {"inputs_per_rank": 50, "count": 100},
            "inputs_per_rank: 50 is not allowed with count: 100; one of them must be null",
        ),
        ({"schedule": "eager"}, "schedule: 'eager' is not allowed; resident (weights stay on each device)"),
        ({"engine": ["taskgraph"], "devices": [1, 3]}, "devices: 3 devices of 2 threads; each device of the engine"),
        ({"reductions": ["dead, inputs"]}, "reductions: ['dead, inputs'] is not allowed; exact reductions"),
        ({"cases": [OWN | {"network": "a {b}/c.npz"}]}, "network: 'a {b}/c.npz' has '{b}', a wildcard"),
        ({"cases": [OWN | {"inputs": "<results>.npz"}]}, "inputs: '<results>.npz' has '<results>', a wildcard or "),
        ({"other_records": ["a<b>c"]}, "other_records: 'a<b>c' has '<b>', a wildcard or a variable in "),
        ({"mnist": "{x}.gz"}, "mnist: '{x}.gz' has '{x}', a wildcard"),
        ({"ops": OPS | {"dlmc": "{x}/dlmc"}}, "ops.dlmc: '{x}/dlmc' has '{x}', a wildcard"),
    ],
)
def test_a_mistake_is_one_line(checked, change, sentence):
    refuses(f"^config: {re.escape(sentence)}", lambda: requests(checked(change)))


def test_a_tilde_is_the_home_folder_in_every_path(checked, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    own = {"network": "~/a/w.npz", "inputs": "~/x.npy", "truth": "~/t.txt"}
    given = checked({"cases": [own], "neurons": [], "mnist": "~/m.gz", "mirror": "~", "other_records": ["~/r", "./~x"],
                     "ops": OPS | {"dlmc": "~/dlmc"}})  # fmt: skip
    assert (given["mirror"], given["other_records"]) == ("/home/me", ["/home/me/r", "./~x"])
    assert given["ops"]["dlmc"] == "/home/me/dlmc"
    (case,) = requests(given)
    paths = ["/home/me/a/w.npz", "/home/me/x.npy", "/home/me/t.txt", "/home/me/m.gz"]
    assert [case.network, case.inputs, case.truth, case.mnist] == paths


@pytest.mark.parametrize("path", ["a>b.npz", "a<1>.npz", "w{.npz", "}{", "a < b > c", "<A>"])
def test_snakemake_takes_other_brackets_as_they_are(checked, path):
    (case,) = requests(checked({"cases": [OWN | {"network": path}], "neurons": []}))
    assert case.network == path
