"""State dicts as torch saves them: each tensor is read as torch has it, or refused by its name."""

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

import spdnn
import spdnn.torch as st

ONES = torch.ones(4, 4)


@pytest.mark.parametrize(
    "weight",
    [
        torch.complex(ONES, torch.arange(16.0).reshape(4, 4)).conj().imag,
        torch.complex(ONES.double(), 2 * ONES.double()).T.conj().imag[:2],
        nn.Parameter(-ONES.bfloat16()),
    ],
    ids=["negated", "negated part", "parameter"],
)
def test_weights_that_are_read(tmp_path, weight):
    torch.save({"fc.weight": weight}, tmp_path / "a.pt")
    read = spdnn.open_network(tmp_path / "a.pt", last="none").layer(0).matrix().toarray()
    torch.testing.assert_close(torch.from_numpy(read.T.copy()), weight.detach().resolve_neg().float())


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (ONES.to(torch.float8_e5m2), "is of torch.float8_e5m2"),
        (ONES.to(torch.uint16), "is of torch.uint16"),
        (ONES.to(torch.complex128), "is of torch.ComplexDoubleStorage"),
        (torch.eye(4).to_sparse(), "is sparse"),
        (torch.eye(4).to_sparse_csc(), "is sparse"),
        (ONES.to("meta"), "is on the device meta"),
        (torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8), "is quantized"),
        (nn.Buffer(ONES), "is no plain tensor"),
    ],
    ids=str,
)
def test_weights_that_are_refused(tmp_path, weight, said):
    torch.save({"fc.bias": torch.ones(4), "fc.weight": weight}, tmp_path / "a.pt")
    refuses(f"a.pt: tensor 'fc.weight' {said}.*; tensors that are read", spdnn.open_network, tmp_path / "a.pt")


def test_weights_that_a_parametrization_computes(tmp_path):
    for make in (parametrizations.weight_norm, parametrizations.spectral_norm, spectral_norm):
        module, x = make(nn.Linear(4, 4)).eval(), torch.ones(3, 4)
        torch.save(module.state_dict(), tmp_path / "a.pt")
        refuses("is of a parametrization, such as weight_norm", spdnn.open_network, tmp_path / "a.pt", last="none")
        with torch.inference_mode():
            torch.testing.assert_close(spdnn.compile(module)(x), module(x))


@pytest.mark.parametrize("ending", ["pt", "npz", "safetensors"])
def test_states_of_sparsified_models_say_how_they_are_read(tmp_path, ending):
    model, path = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), tmp_path / f"a.{ending}"
    st.sparsify(model, 0.5, min_size=0, measure=False, exclude="2", quiet=True)
    state = model.state_dict()
    if ending == "pt":
        torch.save(state, path)
    elif ending == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    else:
        pytest.importorskip("safetensors.torch").save_file(state, path)
    for read in (spdnn.open_network, spdnn.compile):
        refuses("tensor '0.columns' is of a sparse layer of spdnn.torch.* by spdnn.torch.restore", read, path)


def test_tensors_without_data():
    model = spdnn.compile(spdnn.from_matrices([ONES], last="none"))
    for x in (torch.zeros(2, 4, device="meta"), torch.nested.nested_tensor([ONES[0], ONES[1]])):
        refuses("x is no array", model, x)
    refuses("the matrix is no array", spdnn.from_matrices, [ONES.to("meta")], last="none")
