"""The public names: listed on one page, known to type checkers, and short to look at."""

import ast
import importlib
import re

import numpy as np
import pytest

import spdnn
from spdnn.core.provenance import PACKAGE

PAGE = (PACKAGE.parent / "docs/reference/api.md").read_text()


def test_one_page_has_every_public_name_and_no_other():
    listed = re.findall(r"^\| `(spdnn\.[\w.]+)`", PAGE, re.MULTILINE)
    public = [f"spdnn.{name}" for name in spdnn.__all__]
    for module in ("ops", "models"):
        public += [f"spdnn.{module}.{name}" for name in getattr(spdnn, module).__all__]
    (names,) = re.findall(r"^__all__ = (\[.*?\])$", (PACKAGE / "torch/__init__.py").read_text(), re.M | re.S)
    public += [f"spdnn.torch.{name}" for name in ast.literal_eval(names)]  # read: torch is not here
    assert sorted(listed) == sorted(public)
    classes = {name.split(".")[-1]: name for name in listed}
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE):
        module, name = classes[owner].rsplit(".", 1)
        where = {"spdnn.models": "spdnn.ops.models"}.get(module, module)
        assert hasattr(getattr(importlib.import_module(where), name), member), (owner, member)


def test_type_checkers_know_every_public_name():
    """The package says that it has types, and its stub has the names."""
    assert (PACKAGE / "py.typed").exists()
    imported = re.findall(r"^from \S+ import (\w+) as \1$", (PACKAGE / "__init__.pyi").read_text(), re.MULTILINE)
    assert sorted([*imported, "__version__"]) == spdnn.__all__
    assert all(hasattr(spdnn, name) for name in imported)
    assert re.fullmatch(r"\d+\.\d+\.\d+", spdnn.__version__)


NETWORK = spdnn.from_matrices([np.eye(300, 200), np.eye(200, 10)], 0.5, last="none")
INPUTS = spdnn.Inputs.from_array(np.linspace(0, 1, 900).reshape(3, 300))
THINGS = {
    "network": (lambda: NETWORK, "MemoryNetwork(300 -> 10, 2 layers, 210 edges)"),
    "layer": (lambda: NETWORK.layer(0), "Layer(300 -> 200, 200 edges, relu)"),
    "formula": (lambda: spdnn.RadixNet(1024, 120), "RadixNet(1024 -> 1024, 120 layers, 3,932,160 edges)"),
    "first": (lambda: NETWORK.first(1), "FirstLayers(300 -> 200, 1 layer, 200 edges)"),
    "inputs": (lambda: INPUTS, "Inputs(3 x 300, dense)"),
    "result": (lambda: spdnn.infer(NETWORK, INPUTS), "Result(3 of 3 inputs active after 2 layers, 10 outputs)"),
    "model": (lambda: spdnn.compile(NETWORK, threads=1), "Model(300 -> 10, 2 layers, 210 edges, engine cpu, 1 thread)"),
    "matrix": (lambda: spdnn.ops.SparseMatrix.from_dense(np.eye(300)), "SparseMatrix(300 x 300, 300 nonzeros"),
}


@pytest.mark.parametrize("thing", THINGS)
def test_what_is_shown_is_short(thing):
    make, shown = THINGS[thing]
    made = make()
    assert repr(made).startswith(shown)
    assert len(repr(made)) < 120
    assert "\n" not in repr(made)
    html = made._repr_html_()
    assert html.startswith("<table")
    assert html.count("<tr>") >= 2
    assert len(html) < 2500
