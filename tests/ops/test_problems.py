"""Problem sets: what the table holds, what is drawn from a seed."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses

from spdnn.ops import problems
from spdnn.ops.problems import COLUMNS, Shape, ShapeProblem, draw_topology, read_shapes

SMALL = Shape("a", "resnet-50", "small", 20, 30, 7, 14, 2, "random", "made up")
HEAD = ",".join(COLUMNS) + "\n"
ROW = "a,net,layer_1,64,32,8,,1,random,made up\n"


def random(seed=0):
    return np.random.default_rng(seed)


def test_the_table_is_of_the_two_networks():
    shapes = read_shapes()
    counted = Counter()
    for shape in shapes:
        counted[shape.network] += shape.repeats
    assert counted["transformer"] == 97  # matrices of each method and sparsity in the archive
    assert counted["resnet-50"] == 54  # of which rn50_batchsizes.txt has the batch columns
    assert {(s.inference, s.training) for s in shapes if s.network == "transformer"} == {(256, 2048)}
    assert all(s.training == 256 * s.inference for s in shapes if s.network == "resnet-50")
    conv = next(shape for shape in shapes if shape.layer == "group3_2")
    assert (conv.rows, conv.columns, conv.inference) == (256, 3 * 3 * 256, 14 * 14)
    assert [(s.rows, s.columns) for s in shapes if s.set == "b"] == [(n, n) for n in (512, 1024, 2048, 4096, 8192)]
    assert all(s.lengths != "random" for s in shapes if s.set == "c")


def test_problems_of_sets():
    found = problems.problems({"a": None, "b": [75.0, 90]})
    assert Counter(one.shape.set for one in found) == {"a": 25 * 7, "b": 5 * 2}
    assert [one.sparsity for one in found[:7]] == [50, 60, 70, 80, 90, 95, 98]
    both = problems.problems({"a": [90]}, ("inference", "training"), ["transformer"])
    assert [one.batch_columns for one in both] == [256, 2048] * 4
    assert both[0].name == "a.transformer.encoder_0_attention_q.n256.s90"
    assert len({one.name for one in found}) == len(found)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([{"d": None}], "set 'd' is not known: it must be one of a, b, c"),
        ([{"a": [90]}, ("test",)], "phase 'test' is not known: it must be one of inference, training"),
        ([{"a": [90]}, ("inference",), ["bert"]], "network 'bert' is not known: it must be one of transformer, resnet"),
        ([{"a": [100]}], "sparsity 100: it must be in percent, from 0 to below 100"),
        ([{"a": [-1]}], "sparsity -1: it must be"),
        ([{"a": [True]}], "sparsity True: it must be"),
        ([{"b": [90]}, ("training",)], "no problem is left"),
        ([{"a": [90]}, ("inference",), ["square"]], "no problem is left"),
    ],
)
def test_what_is_not_there(arguments, sentence):
    refuses(re.escape(sentence), problems.problems, *arguments)


def test_the_same_seed_draws_the_same():
    one, same = (ShapeProblem(SMALL, 80, "inference", 3) for _ in range(2))
    assert one.topology() == same.topology() == replace(one, phase="training").topology()
    assert (one.values(one.topology()) == same.values(same.topology())).all()
    assert one.topology() != replace(one, seed=4).topology()
    assert one.topology() != replace(one, sparsity=80.5).topology()
    assert one.dense(30, "B").shape == (30, 7)
    assert one.dense(30, "B").dtype == np.float32
    assert not (one.dense(30, "B") == one.dense(30, "Q")).any()


@pytest.mark.parametrize("lengths", ["random", "zipf-0.5", "zipf-1", "rising-1", "rising-2"])
@pytest.mark.parametrize(
    ("rows", "columns", "sparsity"), [(64, 64, 50), (100, 37, 90), (1, 5, 0), (9, 1, 98), (40, 300, 99)]
)
def test_a_drawn_matrix_has_its_nonzeros(lengths, rows, columns, sparsity):
    found = draw_topology(rows, columns, sparsity, lengths, random())
    assert found.shape == (rows, columns)
    assert found.nnz == round((1 - sparsity / 100) * rows * columns)


def test_random_pruning_is_uniform():
    """Every position is as likely as any other: columns and rows are even, and so is what both share."""
    times = sum(
        np.histogram2d(found.row_numbers, found.columns, bins=(8, 8), range=((0, 16), (0, 16)))[0]
        for found in (draw_topology(16, 16, 75, "random", random(seed)) for seed in range(400))
    )
    assert times.sum() == 400 * 64
    assert abs(times / 400 - 1).max() < 5 * np.sqrt(0.75 / 400)  # 4 draws of 1 in 4: a deviation of that a mean


def test_skewed_rows_are_skewed():
    kinds = "random", "zipf-0.5", "zipf-1", "rising-1"
    spread = {kind: draw_topology(512, 512, 90, kind, random()).lengths for kind in kinds}
    shares = {kind: np.sort(found)[-51:].sum() / found.sum() for kind, found in spread.items()}
    assert shares["random"] < 0.15
    assert shares["zipf-0.5"] > 0.25
    assert shares["zipf-1"] > 0.5
    assert (np.diff(spread["rising-1"]) >= 0).all()
    assert (np.sort(spread["zipf-1"]) == spread["rising-1"]).all()
    assert (np.diff(spread["zipf-1"]) < 0).any()
    assert spread["zipf-1"].max() == 512  # full rows


@pytest.mark.parametrize("lengths", ["", "zipf", "zipf-x", "random-1", "falling-1"])
def test_lengths_that_are_none(lengths):
    refuses("lengths '.*': they must be random, zipf-S or rising-S", draw_topology, 4, 4, 50, lengths, random())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: the columns must be set,network,layer,"),
        (HEAD + "a,net\n", "line 2: 2 cells, not 10"),
        (HEAD + ROW.replace("a,net", "d,net"), "line 2: set 'd' must be one of a, b, c"),
        (HEAD + ROW.replace("layer_1", "../layer"), "layer '../layer' must be of small letters"),
        (HEAD + ROW.replace("64", "0"), "rows '0' must be a whole number from 1"),
        (HEAD + ROW.replace("64", "99999999"), "rows '99999999' must be a whole number from 1 to 16,777,216"),
        (HEAD + ROW.replace("32", ""), "columns '' must be a whole number"),
        (HEAD + ROW.replace("random", "zipf"), "lengths 'zipf' must be random"),
        (HEAD + ROW.replace("made up", " "), "source is empty"),
        (HEAD + ROW + ROW, "line 3: net layer_1 is there twice"),
    ],
)
def test_a_broken_table_is_one_sentence(tmp_path, monkeypatch, text, sentence):
    monkeypatch.setattr(problems.config_tables, "table", tmp_path.joinpath)
    (tmp_path / "ops-problems.csv").write_text(text)
    refuses(re.escape(sentence), read_shapes)
    (tmp_path / "ops-problems.csv").write_text(HEAD + ROW)
    assert read_shapes()[0].training is None
