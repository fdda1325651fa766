"""Tutorials and tasks, followed as they are written: every block of their pages, in order, in a checkout of its own.

Of tasks, the workflow and make say what they would do, and `spdnn` has fewer inputs and problems: SHORTER.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from how_to import BIN, ROOT, checkout, code_blocks, follow, replaced, script
from sklearn.neural_network import MLPRegressor

import spdnn
from spdnn.bench.libraries.onnx import onnx_graph
from spdnn.formats.digits import digits_inputs

pytestmark = pytest.mark.full("pages")
SHORTER = {  # a program of the same name, before the others
    "snakemake": f"""
case "$*" in
  *cuda*) ! "{BIN}/snakemake" "$@" --dry-run && exit ;;
esac
exec "{BIN}/snakemake" "$@" --dry-run
""",
    "make": f'exec {shutil.which("make")} --dry-run "$@"',
    "spdnn": f"""
case "$1 $2" in
  challenge*) set -- "$@" --count 300 ;;
  "bench model") set -- "$@" --seconds 0.1 ;;
  "bench kernels") set -- "$@" --count 300 --seconds 0.1 --repeats 1 ;;
  "bench sets") set -- "$@" --network transformer --sparsity 90 --seconds 0.05 ;;
esac
case "$*" in
  *"--engine cuda"*|*"--dlmc"*) ! "{BIN}/spdnn" "$@" && exit ;;
esac
exec "{BIN}/spdnn" "$@"
""",
}
NETWORK = """
from pathlib import Path
import numpy as np, scipy.sparse as sp
rng = np.random.default_rng(1)
Path("weights").mkdir()
for k in (1, 2, 3):
    sp.save_npz(f"weights/{k}.npz", sp.random_array((60, 60), density=0.2, rng=rng, format="csc"))
sp.save_npz("x.npz", sp.random_array((50, 60), density=0.3, rng=rng, format="csr"))
"""
RECORD = "spdnn challenge --neurons 1024 --layers 120 --inputs mnist --record run.json\n"
SMOKE = "snakemake --cores 2 --configfile config/smoke.yaml\n"
NET = f"""python - <<'END'{NETWORK}END
spdnn network import weights -o net.safetensors --last none --rows inputs
"""
LABELS = """python - <<'END'
from pathlib import Path
import numpy as np, spdnn
from spdnn.bench.libraries.onnx import onnx_graph
Path("model.onnx").write_bytes(onnx_graph(spdnn.open_network("net.safetensors")))
np.save("y.npy", np.arange(50))
Path("names.txt").write_text("".join(f"class {k}\\n" for k in range(60)))
END
spdnn infer --network net.safetensors --inputs x.npz --values out.npy
"""
PRUNED = """python - <<'END'
import numpy as np
from safetensors.numpy import save_file
weights = np.random.default_rng(2).normal(size=(3, 60, 60)).astype(np.float32)
save_file({f"fc{k}.weight": layer for k, layer in enumerate(weights, 1)}, "pruned.safetensors")
END
"""
CHECKED = """
spdnn challenge --neurons 1024 --layers 120 --record one-rank.json
mpiexec -n 2 spdnn challenge --neurons 1024 --layers 120 --record two-ranks.json
"""
# What a page begins with: what its reader has. Its blocks of Python are below, and with torch in tests/with_torch.
PAGES = {
    "tutorials/first-verified-run": "",
    "tutorials/your-own-network": "",
    "how-to/run-the-challenge": "ln -s . PATH\n",
    "how-to/your-own-network": f"{NET}{LABELS}{PRUNED}",
    "how-to/check-a-record": RECORD,
    "how-to/compare-records": f"{RECORD}mkdir before after; cp run.json before; cp run.json after\n",
    "how-to/read-the-report": f"{RECORD}mkdir RECORDS...; cp run.json RECORDS...\n{SMOKE}",
    "how-to/many-ranks": NET,
    "how-to/limit-memory": NET,
    "how-to/predict-more-devices": CHECKED,
    "how-to/sparse-operations": f"{NET}cp weights/1.npz weights.npz\n",
    "how-to/use-a-cluster": "",
    "how-to/use-a-gpu": "",
    "how-to/work-offline": "",
    "how-to/compare-with-libraries": "",
    "how-to/test-and-develop": "",
}


def same(printed: str, *names: str) -> float:
    """The first of accuracies that a page prints after their names; all are the same."""
    first, *others = (float(re.search(rf"^{name} (.*)$", printed, re.MULTILINE)[1]) for name in names)
    assert others == pytest.approx([first] * len(others), abs=0.003)
    return first


@pytest.mark.needs("mnist")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path, mnist_file, monkeypatch):
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "data"))
    folder, before = checkout(tmp_path / "checkout"), PAGES[page]
    (folder / "train-images-idx3-ubyte.gz").symlink_to(mnist_file)
    if page.startswith("how-to"):
        before += replaced(tmp_path / "shorter", SHORTER)
    text = re.sub("^.*pip install .*$", "", script(page, activated=page.startswith("how-to")), flags=re.MULTILINE)
    assert text.strip()
    printed = follow(before + text, folder)
    if page.startswith("tutorials"):
        assert "verified    pass" in printed
        (report,) = [*folder.glob("*.html"), *folder.glob("mine/results/report.html")]
        (said,) = re.findall("It begins with: (.*)\\.", (ROOT / f"docs/{page}.md").read_text())
        assert said in report.read_text()
    if page == "tutorials/your-own-network":
        assert same(printed, "served", "pruned") > 0.85


def test_models_are_pruned_and_served_from_onnx_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')\n")
    text = f'export PYTHONPATH="{tmp_path}" SPDNN_TUNED="{tmp_path}/tuned.json"\n'
    text += script("tutorials/prune-an-onnx-model", activated=True)
    printed = follow(text, tmp_path)
    served = same(printed, "served", "pruned")
    assert served > 0.85
    assert "as scikit-learn 1.0" in printed
    assert "verified    pass" in printed
    assert f"top-1 {100 * served:.2f} %" in printed
    assert all(f"\n{name} " in printed for name in ("ours", "scipy", "onnxruntime"))
    products = r"^(\w+ +\d+x\d+ +\d+ % nonzero)  \w"  # ours or in ONNX Runtime, whichever is faster here
    page = (ROOT / "docs/tutorials/prune-an-onnx-model.md").read_text()
    shown, found = (re.findall(products, one, re.MULTILINE) for one in (page, printed))
    assert shown == found
    assert len(shown) == 6
    assert float(re.search("largest difference (.*)", printed)[1]) < 1e-5


def test_python_of_the_pages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    inputs, square = digits_inputs(1024).first(300), rng.random((60, 60), dtype=np.float32)

    def ran(page, blocks, **names):
        for block in blocks:
            exec(compile(code_blocks(page)[block], page, "exec"), names)
        return names

    ran("limit-memory.md", [0], spdnn=spdnn, network=spdnn.RadixNet(1024, 120), inputs=inputs)
    heads = {name: rng.random((2, 60, 16), dtype=np.float32) for name in "qkv"}
    mask = spdnn.ops.SparseMatrix.from_dense(np.tri(60, dtype=np.float32))
    names = ran("sparse-operations.md", [0], weights=square, x=square, dy=square, bias=square[0], mask=mask, **heads)
    assert names["A"].nnz == 360
    assert (names["y"].shape, names["dx"].shape, names["z"].shape) == ((60, 60), (60, 60), (2, 60, 16))
    layers = {f"w{k}": sp.random_array((60, 60), density=0.2, rng=rng, dtype=np.float32) for k in (1, 2, 3)}
    biases = {f"b{k}": square[k] for k in (1, 2, 3)}
    estimator = MLPRegressor(hidden_layer_sizes=8).fit(square, square[:, :2])
    names = ran("your-own-network.md", [3], spdnn=spdnn, estimator=estimator, x=square)
    assert np.allclose(names["y"], estimator.predict(square), rtol=1e-4, atol=1e-4)
    names = ran("your-own-network.md", [4], x=square, inputs_1024=inputs, **layers, **biases)
    assert names["y"].shape == (60, 60)
    Path("model.onnx").write_bytes(onnx_graph(names["network"]))
    assert np.allclose(ran("your-own-network.md", [1], x=square)["y"], names["y"], rtol=1e-4, atol=1e-4)
