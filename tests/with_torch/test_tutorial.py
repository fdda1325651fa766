"""What the documentation says of PyTorch is so: docs/tutorials/prune-and-serve.md, and blocks of tasks."""

import re

import numpy as np
import torch
from how_to import code_blocks

import spdnn
import spdnn.torch as st


def test_it_runs_and_the_sparse_model_answers(root, tmp_path, monkeypatch, capsys):
    page = (root / "docs" / "tutorials" / "prune-and-serve.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "prune-and-serve.md", "exec"), names)
    printed = capsys.readouterr().out
    table = re.search(r"^layer .*?(?=^```)", page, re.MULTILINE | re.DOTALL)[0]
    assert table in printed
    assert min(names["dense"], names["pruned"], names["sparse"]) > 0.85
    served, model, x = names["served"], names["model"], names["x"]
    assert isinstance(served[0], st.SparseLinear)
    assert isinstance(served[2], st.SparseLinear)
    with torch.inference_mode():
        assert torch.equal(served(x), model(x))
    light = (names["logits"].argmax(1) == names["y"][names["test"]].numpy()).mean()
    assert abs(light - names["pruned"]) < 0.01
    digit, share = names["answer"](x[-1])
    assert digit == served(x[-1:]).argmax().item()
    assert 0 < share <= 1


def test_blocks_of_tasks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    x = torch.rand(8, 128)
    names = {"model": model, "module": model, "images": x, "spdnn": spdnn}
    own = code_blocks("your-own-network.md")
    for block in (own[0], own[2]):
        exec(compile(block, "your-own-network.md", "exec"), names)
    assert torch.allclose(names["y"], model(x), atol=1e-5)
    served = spdnn.compile(spdnn.open_network("pruned.safetensors"))(x.numpy())
    assert np.allclose(served, names["y"].numpy(), atol=1e-4)
    heads = {name: torch.rand(2, 64, 16, requires_grad=True) for name in "qkv"}
    mask = spdnn.ops.SparseMatrix.from_dense(np.tri(64, dtype=np.float32))
    names = {"model": model, "linear": model[0], "x": x, "mask": mask, **heads}
    exec(compile(code_blocks("sparse-operations.md")[1], "sparse-operations.md", "exec"), names)
    names["y"].sum().backward()
    assert heads["q"].grad is not None
    assert names["layer"](x).shape == (8, 256)
