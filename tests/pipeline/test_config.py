"""The workflow's configuration: presets fit the schema, mistakes are one line."""

import pytest
import yaml

from spdnn.common.errors import InputError
from spdnn.engines.registry import engine
from spdnn.pipeline import config
from spdnn.problem import challenge
from spdnn.reductions.registry import parse_reductions

OWN = {"name": "mine", "path": "net.safetensors", "layers": 3, "inputs": "x.npy"}


@pytest.fixture
def schema(root):
    return root / "workflow/schemas/config.schema.yaml"


@pytest.fixture
def default(root):
    return yaml.safe_load((root / "config/config.yaml").read_text())


@pytest.fixture
def checked(default, schema):
    """A function: the default configuration with these changes, checked."""
    return lambda change: config.check(default | change, schema)


def test_the_default_gives_every_key(default, schema):
    rules = yaml.safe_load(schema.read_text())
    assert set(default) == set(rules["properties"]) == set(rules["required"])
    described = [rules["properties"][key].get("description") for key in rules["properties"]]
    assert all(described)


PRESETS = {
    "config": 4, "smoke": 1, "challenge": 12, "like-for-like": 12, "peers": 1, "strong": 40, "weak": 14,
    "unstructured": 8, "schedules": 16, "ops": 0, "ladder": 7, "ladder-cuda": 9,
}  # fmt: skip


def test_presets_and_how_many_cases_they_have(root, checked):
    assert {path.stem for path in (root / "config").glob("*.yaml")} == set(PRESETS)
    for preset, cases in PRESETS.items():
        found = config.cases(checked(yaml.safe_load((root / f"config/{preset}.yaml").read_text())))
        assert len(found) == cases, preset
        for case in found:
            parse_reductions(case.reductions, engine(case.engine, usable=False).offers)
        if preset in ("challenge", "like-for-like"):
            problems = {(f"radixnet-{problem.neurons}", problem.layers) for problem in challenge.PROBLEMS}
            assert {(case.network, case.layers) for case in found} == problems
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
        ({"second": 1}, "ops: the key 'second' is not known; did you mean 'seconds'?"),
    ],
)
def test_what_ops_may_not_be(checked, change, sentence):
    with pytest.raises(InputError) as error:
        checked({"ops": OPS | change})
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        *({"networks": [OWN | {"name": f"mine{more}"}]} for more in ("\n", "\nx", "; x", "$(x)", " x", "'")),
        {"engines": "cpu\n"},
        {"reductions": "all\n"},
        {"ops": OPS | {"models": ["transformer-small\n"]}},
    ],
)
def test_a_name_that_a_shell_would_split_is_refused(checked, change):
    with pytest.raises(InputError, match=r"^config: [\w.]+: .* is not allowed; [^\n]*$"):
        checked(change)


def test_ops_need_no_network(checked):
    nothing = {"neurons": [], "layers": []}
    assert config.cases(checked(nothing | {"ops": OPS})) == []
    with pytest.raises(InputError, match="nothing to run"):
        config.cases(checked(nothing))
    assert checked({"ops": "null"})["ops"] is None


def test_scalars_stand_for_lists_and_cases_are_every_combination(checked):
    found = checked({"neurons": 65536, "layers": 1920, "inputs": "mnist", "threads": [1, 2]})
    assert [case.name for case in config.cases(found)] == [
        f"radixnet-65536-1920.mnist-65536.cpu.all.t{threads}" for threads in (1, 2)
    ]


def test_nulls_and_lists_on_the_command_line(checked):
    found = checked({"count": "null", "memory": "none", "layers": ["120", "480"]})
    assert (found["count"], found["memory"], found["layers"]) == (None, None, [120, 480])
    whole = checked({"repeats": 2.0, "layers": [5.0]})
    assert [type(number) for number in (whole["repeats"], *whole["layers"])] == [int, int]
    own = OWN | {"bias": "-0.1", "clip": "32", "layers": "3"}  # as Snakemake gives what is inside of a value
    found = checked({"networks": [own], "verify": {"edges": "1e9", "seed": "7"}})
    assert found["networks"] == [OWN | {"bias": -0.1, "clip": 32}]
    assert found["verify"] == {"edges": 10**9, "seed": 7}


def test_ranks_run_with_every_partition_and_one_rank_once(checked):
    change = {"neurons": 1024, "layers": 120, "ranks": [1, 2], "partition": ["static", "cyclic"], "count": 100}
    found = config.cases(checked(change))
    assert [case.name for case in found] == [
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2",
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2.r2-static",
        "radixnet-1024-120.digits-1024-first-100.cpu.all.t2.r2-cyclic",
    ]
    assert [(case.ranks, case.partition) for case in found] == [(1, None), (2, "static"), (2, "cyclic")]
    assert len({case.prepared for case in found}) == 1


def test_items_of_cases_are_changes_of_the_configuration(checked):
    change = {
        "neurons": 1024,
        "layers": [120, 480],
        "networks": [OWN],
        "ladder": [{"engine": "csr", "reductions": "none"}],
    }
    items = [
        {"neurons": 4096, "layers": 120, "inputs_per_rank": 50, "ranks": [1, 2], "source": "unstructured"},
        {"engines": "cpu", "reductions": ["dead", "none"], "layers": 120, "threads": 1},
        {"networks": ["mine"], "engines": "spgemm"},
        {"layers": 120},  # which the configuration has
    ]
    change["count"] = 9
    plain, whole = config.cases(checked(change)), config.cases(checked(change | {"cases": items}))
    assert whole[: len(plain)] == plain
    assert [case.name for case in whole[len(plain) :]] == [
        "unstructured-4096-120.digits-4096-first-50.csr.none.t2",
        "unstructured-4096-120.digits-4096-first-100.csr.none.t2.r2-rebalanced",
        "radixnet-1024-120.digits-1024-first-9.cpu.dead.t1",
        "radixnet-1024-120.digits-1024-first-9.cpu.none.t1",
        "mine-3.own-mine-first-9.spgemm.all.t2",
    ]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ({}, r"cases\.0: \{\} is not allowed; a change of this configuration"),
        ({"engine": "cpu"}, r"cases\.0: the key 'engine' is not known; did you mean 'engines'"),
        ({"neurons": 5}, r"cases\.0\.neurons: 5 is not allowed; widths"),
        ({"networks": ["other"]}, "cases: networks: 'other' is not the name of one of your own networks"),
        ({"count": 5, "inputs_per_rank": 5}, "inputs_per_rank: 5 is not allowed with count: 5"),
        ({"engines": "taskgraph", "devices": 3}, "devices: 3 devices of 2 threads"),
        ({"engines": "taskgraph", "device_memory": 5}, "cases: two cases are named radixnet-1024-120"),
    ],
)
def test_what_an_item_of_cases_may_not_be(checked, item, sentence):
    with pytest.raises(InputError, match=f"^config: {sentence}"):
        config.cases(checked({"engines": ["cpu", "taskgraph"], "neurons": 1024, "layers": 120, "cases": [item]}))


def test_ranks_multiply_everything_else(checked):
    change = {"inputs": ["digits", "mnist"], "reductions": ["all", "none"], "threads": [1, 2], "ranks": [1, 2, 4]}
    change |= {"partition": ["static", "cyclic", "rebalanced"], "networks": [OWN]}
    found = config.cases(checked(change))
    problems = 2 * 2 * 2 + 1  # widths, depths, inputs; a network of one's own
    assert len(found) == problems * 2 * 2 * (1 + 2 * 3) == len({case.name for case in found})


def test_weak_scaling_counts_inputs_by_ranks(checked):
    change = {"neurons": 1024, "layers": 120, "inputs_per_rank": "50", "ranks": ["1", "2"], "partition": "cyclic"}
    found = config.cases(checked(change))
    assert [(case.ranks, case.count) for case in found] == [(1, 50), (2, 100)]
    assert found[1].name == "radixnet-1024-120.digits-1024-first-100.cpu.all.t2.r2-cyclic"
    assert checked({"inputs_per_rank": "null"})["inputs_per_rank"] is None


def test_own_networks(checked):
    found = checked({"neurons": [], "networks": [OWN], "reductions": ["dead,inputs"], "count": 5})
    (case,) = config.cases(found)
    assert case.name == "mine-3.own-mine-first-5.cpu.dead+inputs.t2"
    assert case.prepared == "mine.cpu.dead+inputs"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"neuron": 3}, "top level: the key 'neuron' is not known; did you mean 'neurons'?"),
        ({"neurons": [1000]}, "neurons: [1000] is not allowed; widths of the RadiX-Net networks"),
        ({"layers": 0}, "layers: 0 is not allowed; depths: an integer from 1 to 1920"),
        ({"inputs": "cats"}, "inputs: 'cats' is not allowed; digits (bundled"),
        ({"repeats": "many"}, "repeats: 'many' is not allowed; timed repeats"),
        ({"verify": {"edges": -1, "seed": 0}}, "verify.edges: -1 is not allowed; edges that the oracle may go through"),
        ({"verify": {"seed": 0}}, "verify: edges is missing; how the oracle is used"),
        (
            {"fetch": {"mirror": None, "mnist": None, "url": 1}},
            "fetch: the key 'url' is not known; known are mirror, mnist",
        ),
        (
            {"networks": [OWN | {"name": "radixnet-3"}]},
            "networks.0.name: 'radixnet-3' is not allowed; a name of letters",
        ),
        ({"networks": [OWN | {"path": "a {b}/c.npz"}]}, "networks.path: 'a {b}/c.npz' has braces, which are wildcards"),
        ({"fetch": {"mirror": None, "mnist": "{x}.gz"}}, "fetch.mnist: '{x}.gz' has braces, which are wildcards"),
        ({"ops": OPS | {"dlmc": "{x}/dlmc"}}, "ops.dlmc: '{x}/dlmc' has braces, which are wildcards"),
        ({"count": "9" * 5000}, f"count: '{'9' * 56}... is not allowed"),
        ({"networks": [OWN, OWN]}, "networks: the name 'mine' is used twice"),
        ({"ranks": 0}, "ranks: 0 is not allowed; MPI ranks of a run, an integer from 1 to 65536"),
        ({"ranks": []}, "ranks: [] is not allowed; MPI ranks of a run"),
        ({"rank": 2}, "top level: the key 'rank' is not known; did you mean 'ranks'?"),
        ({"partition": "blocks"}, "partition: 'blocks' is not allowed; how several ranks share the inputs: static"),
        ({"inputs_per_rank": 0}, "inputs_per_rank: 0 is not allowed; weak scaling, inputs for each rank"),
        (
            {"inputs_per_rank": 50, "count": 100},
            "inputs_per_rank: 50 is not allowed with count: 100; one of them must be null",
        ),
        ({"schedules": "eager"}, "schedules: 'eager' is not allowed; how the engines taskgraph and taskgraph-cuda cut"),
        ({"engines": ["taskgraph"], "devices": [1, 3]}, "devices: 3 devices of 2 threads; each device of the engine"),
        ({"reductions": ["dead, inputs"]}, "reductions: ['dead, inputs'] is not allowed; exact reductions"),
    ],
)
def test_a_mistake_is_one_line(checked, change, sentence):
    with pytest.raises(InputError) as refused:
        checked(change)
    assert str(refused.value).startswith(f"config: {sentence}")
    assert "\n" not in str(refused.value)


def test_nothing_to_run(checked):
    with pytest.raises(InputError, match="nothing to run"):
        config.cases(checked({"neurons": []}))
