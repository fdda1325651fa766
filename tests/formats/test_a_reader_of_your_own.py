"""docs/how-to/add-a-reader.md, followed: a format from outside the package is read, run and refused in a sentence."""

import json

import numpy as np
import pytest
from how_to import code_blocks
from refusals import refuses

import spdnn
from spdnn.cli import main
from spdnn.formats import detection


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A network in that format: the path of its file."""
    module, entry = code_blocks("add-a-reader.md")
    (tmp_path / "json_files.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(detection, "NETWORKS", dict(detection.NETWORKS))
    exec(entry, {"NETWORKS": detection.NETWORKS})
    path = tmp_path / "network.json"
    path.write_text(json.dumps([[[1, 0], [2, -1]], [[1], [1]]]))
    return path


def test_a_format_of_your_own_is_read_compiled_and_imported(network, tmp_path, capsys):
    found = spdnn.open_network(network, last="none", bias=[0.5, -1])
    assert spdnn.compile(found)([[1, 2]]).tolist() == [[4.5]]  # relu(5.5, -1.5), their sum, less 1
    store = tmp_path / "network.safetensors"
    assert main(["network", "import", str(network), "-o", str(store), "--last", "relu"]) == 0
    assert np.array_equal(spdnn.compile(str(store))([[1, 2]]), [[5]])
    assert "2 layers" in capsys.readouterr().out


def test_what_is_missing_or_wrong_is_a_sentence(network, tmp_path):
    refuses("it does not say what follows its last layer", spdnn.open_network, network)
    refuses("json: epsilon 0.1 given, but the file has no BatchNorm", spdnn.open_network, network, epsilon=0.1)
    network.write_text('[[["a"]]]')
    refuses("network.json: this is no list of matrices", spdnn.open_network, network, last="none")
    refuses("no model file", spdnn.open_network, __file__)
