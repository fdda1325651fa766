"""The tutorial docs/tutorials/prune-and-serve.md does what it says."""

import re

import torch

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
