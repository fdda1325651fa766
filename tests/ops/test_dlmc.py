"""The Deep Learning Matrix Collection: a copy of it, a sample of its matrices, and what is refused."""

import re
from collections import Counter

import dlmc_copy
import numpy as np
import pytest
from dlmc_copy import NAMES
from refusals import refuses

from spdnn.core.errors import SpdnnError
from spdnn.ops import dlmc
from spdnn.ops.problems import read_shapes
from spdnn.ops.topology import Topology

FIRST = "rn50/random_pruning/0.5/initial_conv.smtx"


@pytest.fixture(autouse=True)
def copy(request, monkeypatch):
    if "published" not in request.node.name:
        dlmc_copy.use(monkeypatch)


def problems(sample, phases=("inference",)):
    return list(sample.problems(phases))


def test_published_counts_are_of_the_shapes_of_the_table():
    counted = Counter()
    for shape in read_shapes():
        counted[shape.network] += shape.repeats
    assert dlmc.COUNTS["transformer"] == 4 * 7 * counted["transformer"]
    assert dlmc.COUNTS["rn50"] == 17 * counted["resnet-50"] + 4 * (counted["resnet-50"] - 1)  # these lack a layer
    shapes = [(shape.network, shape.rows, shape.columns) for shape in read_shapes() if shape.set == "a"]
    assert len(set(shapes)) == len(shapes)  # so the shape of a matrix tells its batch columns


def test_an_archive_and_its_folder_have_the_same_matrices(tmp_path):
    packed = dlmc_copy.archive(tmp_path)
    found = problems(dlmc.Sample(packed, None))
    for path in (dlmc_copy.archive(tmp_path, "w"), tmp_path / "unpacked", tmp_path / "unpacked/dlmc"):
        assert problems(dlmc.Sample(path, None)) == found
    assert sorted(problem.matrix for problem in found) == sorted(NAMES)
    one = next(problem for problem in found if problem.matrix == FIRST)
    assert one.topology() == Topology((20, 30), np.arange(21), np.full(20, NAMES.index(FIRST)))
    assert (one.sparsity, one.origin, one.batch_columns, one.drawn, one.drawn_from) == (50, "dlmc", 7, 30, 30)
    assert one.name == "a.resnet-50.random-initial_conv.n7.s50"
    assert len({problem.name for problem in found}) == len(NAMES)
    assert {problem.shape.layer for problem in found} >= {"l0-encoder_layer_0_self_attention_q"}


@pytest.mark.parametrize("count", [5, 10, 20])
def test_a_sample_has_a_share_from_each_model_and_sparsity(tmp_path, count):
    path = dlmc_copy.folder(tmp_path)
    sample = dlmc.Sample(path, count, seed=3)
    assert len(set(sample.names)) == count
    assert sample.drawn_from == 30
    drawn, all_of = (Counter(re.sub("/.*/(.*)/.*", r" \1", name) for name in names) for names in (sample.names, NAMES))
    assert all(abs(drawn[stratum] - all_of[stratum] * count / 30) <= 1 for stratum in all_of)
    assert sample.names == dlmc.Sample(path, count, seed=3).names
    assert {tuple(dlmc.Sample(path, count, seed).names) for seed in range(9)} != {tuple(sample.names)}
    both = problems(sample, ("inference", "training"))
    assert Counter(problem.phase for problem in both) == {"inference": count, "training": count}


def test_a_sample_of_some_models(tmp_path):
    path = dlmc_copy.folder(tmp_path)
    sample = dlmc.Sample(path, 100, sparsities=[90.0, 80], networks=["resnet-50"])
    assert sorted(sample.names) == sorted(name for name in NAMES if name.startswith("rn50") and "/0.9/" in name)
    assert sample.drawn_from == 3
    refuses("no matrix of the collection is of these networks and sparsities", dlmc.Sample, path, 5, 0, [80])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"20, 30, 0\n0\n\n", "initial_conv.smtx, line 2: 1 offsets"),
        (b"2, 3, 1\n0 0 1\n2\n", "initial_conv.smtx: 2 x 3, a shape that resnet-50 has not in the table"),
        (b"20, 30, 1\n" + b"0 " * 20 + b"1\n30\n", "initial_conv.smtx: row 19 has column 30"),
        (b"\xff\x00", "it cannot be read as a .smtx file"),
    ],
)
def test_a_matrix_that_is_wrong(tmp_path, content, sentence):
    for path in (dlmc_copy.archive(tmp_path, changes={FIRST: content}), tmp_path / "unpacked"):
        sample = dlmc.Sample(path, None)
        refuses(f"{re.escape(str(path))}: .*{re.escape(sentence)}", problems, sample)


def test_a_copy_that_is_not_whole(tmp_path):
    refuses("there is no such DLMC archive", dlmc.Sample, tmp_path / "absent.tar.gz")
    path = dlmc_copy.archive(tmp_path, changes={FIRST: None})
    for copy in (path, tmp_path / "unpacked"):
        refuses("5 matrices of rn50, and a whole copy of DLMC has 6", dlmc.Sample, copy)
    refuses("0 matrices of transformer", dlmc.Sample, tmp_path / "unpacked/dlmc/rn50")
    whole = path.read_bytes()
    for broken in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        refuses("dlmc.tar.gz: not a whole tar archive", dlmc.Sample, path)


def test_a_copy_comes_from_the_mirror_or_the_sentence_says_what_was_tried(tmp_path, monkeypatch):
    archive = dlmc_copy.archive(tmp_path)
    (tmp_path / "mirror/dlmc").mkdir(parents=True)
    archive.rename(tmp_path / "mirror/dlmc/dlmc.tar.gz")
    monkeypatch.setenv("SPDNN_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "data"))
    assert dlmc.Sample("fetch").path == tmp_path / "data/dlmc/dlmc.tar.gz"
    monkeypatch.setenv("SPDNN_MIRROR", str(tmp_path / "empty"))
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("spdnn.formats.fetch._fetch_url", lambda *_: "the server answered 403 Forbidden")
    with pytest.raises(SpdnnError) as error:
        dlmc.Sample("fetch")
    for part in (f"{tmp_path}/empty/dlmc/dlmc.tar.gz: there is no such file", "answered 403", "--dlmc PATH", "mirror"):
        assert part in str(error.value)
