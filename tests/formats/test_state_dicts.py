"""State dicts: layers by their names, in .npz, .safetensors and .pt; what a user must state; what is refused."""

import json
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses
from safetensors.numpy import save_file

import spdnn
from spdnn.formats.store import write_network
from spdnn.formats.torch_files import TorchFile

# What torch 2.15 saved of Sequential(Linear(6, 5), BatchNorm1d(5), ReLU, Linear(5, 4, bias=False), ReLU, Linear(4, 3)),
# the second layer pruned by torch.nn.utils.prune, the third with transposed strides; and inputs and outputs of it.
TORCH = Path(__file__).parents[1] / "data" / "pruned.pt"
ROWS = dict(np.load(TORCH.with_suffix(".npz")))


def outputs(path, x, **stated):
    return spdnn.compile(spdnn.open_network(path, **stated))(x)


def forward(tensors, order, x):
    """float64 outputs of the layers in that order, ReLU between them."""
    for k, name in enumerate(order):
        x = x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors.get(f"{name}.bias", 0)
        x = np.maximum(x, 0) if k < len(order) - 1 else x
    return x


def made(*layers):
    """Tensors by name of layers (name, outputs, inputs)."""
    rng = np.random.default_rng(4)
    tensors = {}
    for name, outs, ins in layers:
        tensors[f"{name}.weight"] = rng.standard_normal((outs, ins)).astype(np.float32)
        tensors[f"{name}.bias"] = rng.standard_normal(outs).astype(np.float32)
    return tensors


def save(path, tensors, **words):
    if path.suffix == ".npz":
        np.savez(path, **tensors)
    else:
        save_file(tensors, path, **words)
    return path


def test_what_torch_saved(tmp_path):
    assert np.allclose(outputs(TORCH, ROWS["x"], last="none"), ROWS["y"], rtol=0, atol=1e-6)
    tensors = {name: np.asarray(array) for name, array in TorchFile(TORCH).items()}
    for ending in (".npz", ".safetensors"):
        path = save(tmp_path / f"a{ending}", {name: np.ascontiguousarray(array) for name, array in tensors.items()})
        assert np.allclose(outputs(path, ROWS["x"], last="none"), ROWS["y"], rtol=0, atol=1e-6)
    assert spdnn.open_network(TORCH, last="none").edges == 30 + 10 + 12  # half of the second layer is masked


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("layers", "order"),
    [
        ((("fc10", 6, 6), ("fc2", 6, 6), ("fc1", 6, 6)), ("fc1", "fc2", "fc10")),
        ((("input", 6, 4), ("hidden", 5, 6), ("output", 3, 5)), ("input", "hidden", "output")),
        ((("body.0", 6, 6), ("body.2", 5, 6), ("a.head", 3, 5)), ("body.0", "body.2", "a.head")),
    ],
    ids=["numbers", "widths", "both"],
)  # fmt: skip
def test_order(tmp_path, ending, layers, order):
    tensors = made(*layers)
    path, x = save(tmp_path / f"a{ending}", tensors), np.ones((2, {name: ins for name, _, ins in layers}[order[0]]))
    got = outputs(path, x.astype(np.float32), last="none")
    assert np.allclose(got, forward(tensors, order, x), rtol=1e-5, atol=1e-5)


def test_the_epsilon_of_batch_norms(tmp_path):
    tensors = made(("0", 3, 4)) | {"1.running_mean": np.ones(3), "1.running_var": np.array([1e-3, 1, 4])}
    path, x = save(tmp_path / "a.npz", tensors), np.ones((1, 4))
    sums = x @ tensors["0.weight"].T + tensors["0.bias"] - 1
    for stated, epsilon in (({}, 1e-5), ({"epsilon": 1e-3}, 1e-3), ({"epsilon": 0}, 0)):
        wanted = sums / np.sqrt(tensors["1.running_var"] + epsilon)
        assert np.allclose(outputs(path, x.astype(np.float32), last="none", **stated), wanted, rtol=1e-5, atol=1e-5)
    for wrong in (-1e-5, float("nan")):
        refuses("of a BatchNorm; it is a number from 0 to 1", spdnn.open_network, path, last="none", epsilon=wrong)
    save(path, made(("0", 3, 4)))
    np.savez(tmp_path / "matrix.npz", np.ones((2, 3)))
    for other in (path, tmp_path / "matrix.npz"):
        refuses("epsilon 0.001 given, but the file has no", spdnn.open_network, other, last="none", epsilon=1e-3)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (made(("first", 4, 4), ("second", 4, 4)), r"order .* is not known .*first\.weight, .*: several orders fit"),
        (made(("a", 4, 5), ("b", 6, 7)), "order .* is not known .*: their widths fit in no order"),
        (made(*((name, 2, 2) for name in "abcdefg")), "names of 7 kinds, whose order is not known"),
        (
            made(("fc", 4, 4)) | {"conv.weight": np.ones((2, 2, 3, 3)), "norm": np.ones(4)},
            r"tensor 'norm' is no weight of a layer, .*; conv\.weight has 4 dimensions",
        ),
        (made(("fc1", 4, 4)) | {"fc1.weight_mask": np.ones((4, 4))}, r"tensor 'fc1\.weight_mask' is no weight"),
        ({"fc.weight_orig": np.ones((4, 4))}, r"tensor 'fc\.weight_mask' is missing"),
        ({"fc.weight_orig": np.ones((4, 4)), "fc.weight_mask": np.ones((4, 1))}, r"mask is \(4, 1\); it must be"),
        (
            made(("fc1", 4, 4)) | {f"bn1.{part}": np.ones(4) for part in ("running_mean", "running_var")},
            r"'bn1\.' is a BatchNorm, and its name does not say",
        ),
        (
            made(("0", 4, 4)) | {f"1.{part}": np.ones(3) for part in ("running_mean", "running_var")},
            r"1\.running_mean is \(3,\); it must be \(4,\)",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, tensors, said):
    for ending in (".npz", ".safetensors"):
        refuses(said, spdnn.open_network, save(tmp_path / f"a{ending}", tensors), last="none")


def test_the_last_activation_is_stated(tmp_path):
    tensors = made(("fc1", 4, 4), ("fc2", 3, 4))
    matrix = sp.csr_array(np.ones((3, 2), np.float32))
    sp.save_npz(tmp_path / "m.npz", matrix)
    dicts = [save(tmp_path / f"a{ending}", tensors) for ending in (".npz", ".safetensors")]
    for path in (*dicts, TORCH, tmp_path / "m.npz"):
        refuses("it does not say what follows its last layer.* --last relu or --last none", spdnn.open_network, path)
    path = save(tmp_path / "b.safetensors", tensors, metadata={"last": "none"})
    assert str(spdnn.open_network(path).header(1).activation) == "none"
    refuses("its metadata say that its last activation is 'none', not 'relu'", spdnn.open_network, path, last="relu")
    path = save(tmp_path / "b.safetensors", tensors, metadata={"last": "tanh"})
    refuses("last activation 'tanh' is not known", spdnn.open_network, path)


def test_rows_of_matrices_are_stated_where_nothing_tells(tmp_path):
    square, path = np.array([[1, 2], [0, 3]], np.float32), tmp_path / "a.npz"
    x = np.array([[1, 10]], np.float32)
    for write in (lambda: np.savez(path, square), lambda: sp.save_npz(path, sp.csr_array(square))):
        write()
        refuses("its weights fit both ways: .* --rows inputs, or --rows outputs", spdnn.open_network, path, last="none")
        assert outputs(path, x, last="none", rows="inputs").tolist() == (x @ square).tolist()
        assert outputs(path, x, last="none", rows="outputs").tolist() == (x @ square.T).tolist()
    np.savez(path, **{"fc.weight": square})
    assert outputs(path, x, last="none").tolist() == (x @ square.T).tolist()
    assert outputs(path, x, last="none", rows="inputs").tolist() == (x @ square).tolist()
    refuses("rows 'up' of a weight matrix: they are 'inputs' or 'outputs'", spdnn.open_network, path, rows="up")
    np.savez(path, np.ones((3, 2)))
    assert spdnn.open_network(path, last="none").inputs == 3


def test_biases_by_layer(tmp_path):
    for k, shape in enumerate(((3, 2), (2, 4))):
        sp.save_npz(tmp_path / f"{k}.npz", sp.csr_array(np.ones(shape)))
    network = spdnn.open_network(tmp_path, bias=[-1, [0, 1, 2, 3]], last="none")
    assert [network.layer(0).bias, network.layer(1).bias.tolist()] == [-1, [0, 1, 2, 3]]
    refuses("3 biases for 2 layers", spdnn.open_network, tmp_path, bias=[1, 2, 3], last="none")


def test_a_file_and_the_store_of_it_are_one_network(tmp_path):
    np.savez(tmp_path / "a.npz", **{"fc.weight": np.ones((3, 2)), "fc.bias": np.arange(3)})
    network = spdnn.open_network(tmp_path / "a.npz", last="none")
    write_network(tmp_path / "net.safetensors", network)
    assert spdnn.open_network(tmp_path / "net.safetensors").identity() == network.identity()


def packed(path, content, data=None, **options):
    """A file as torch.save lays it out."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("a/data.pkl", content)
        for name, values in (data or {}).items():
            archive.writestr(f"a/data/{name}", values)
    return path


def indexed(folder, file_of, **more):
    """The index of files that share a state dict."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": file_of, **more}))
    return path


def test_files_that_share_a_state_dict(tmp_path):
    tensors = made(("fc1", 5, 4), ("fc2", 3, 5))
    whole = spdnn.open_network(save(tmp_path / "a.safetensors", tensors), last="none")
    files = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    for k, file in enumerate(files, 1):
        save(tmp_path / file, {name: one for name, one in tensors.items() if name.startswith(f"fc{k}")})
    map_of = {name: files[int(name[2]) - 1] for name in tensors}
    index = indexed(tmp_path, map_of, metadata={"total_size": 1})
    assert spdnn.open_network(index, last="none").sha256() == whole.sha256()
    refuses(r"one file of several; name their index, model\.safetensors", spdnn.open_network, tmp_path / files[0])
    for changed, said in (
        (map_of | {"fc3.weight": files[1]}, "has no tensor 'fc3.weight'"),
        (map_of | {"fc2.bias": "../a.safetensors"}, "must be a file in the folder of the index"),
        (map_of | {"fc2.bias": "b.safetensors"}, r"b\.safetensors: there is no such file"),
        ({"fc1.weight": 1}, "its weight_map must name"),
        (None, "its weight_map must name"),
        (dict(map_of.items() - {("fc2.weight", files[1])}), f"not name tensor 'fc2.weight', which is in {files[1]}"),
        (dict.fromkeys(["fc2.weight", "fc2.bias"], files[1]), f"does not name '{files[0]}', one of its 2 files"),
    ):
        refuses(said, spdnn.open_network, indexed(tmp_path, changed), last="none")
    index.write_bytes(b"{\xff")
    refuses("it is not a file index in JSON", spdnn.open_network, index)


def test_a_batch_norm_in_a_file_of_several_counts_its_batches(tmp_path):
    """In int64, a type that no weight has."""
    parts = {"running_mean": np.ones(3, np.float32), "running_var": np.full(3, 4, np.float32)}
    norm = {f"1.{name}": array for name, array in (parts | {"num_batches_tracked": np.array(7)}).items()}
    tensors = made(("0", 3, 4)) | norm
    path = save(tmp_path / "a.safetensors", tensors)
    index = indexed(tmp_path, dict.fromkeys(tensors, path.name))
    assert spdnn.open_network(index, last="none").sha256() == spdnn.open_network(path, last="none").sha256()


def test_a_tensor_of_several_names(tmp_path):
    """As save_model of safetensors and huggingface_hub write it: once, with its other names in the metadata."""
    one, two = made(("fc1", 4, 4)), made(("fc2", 4, 4), ("fc3", 4, 4))
    shared = {"fc2.weight": "fc1.weight", "fc3.bias": "fc1.bias", "format": "pt"}
    two = {name: array for name, array in two.items() if name not in shared}
    whole = one | two | {"fc2.weight": one["fc1.weight"], "fc3.bias": one["fc1.bias"]}
    wanted = spdnn.open_network(save(tmp_path / "whole.npz", whole), last="none").sha256()
    path = save(tmp_path / "a.safetensors", one | two, metadata=shared)
    assert spdnn.open_network(path, last="none").sha256() == wanted
    for of_files, of_index in ((shared, {}), (None, {"total_size": 1, **shared})):
        save(tmp_path / "one.safetensors", one, metadata=of_files)
        save(tmp_path / "two.safetensors", two, metadata=of_files)
        map_of = dict.fromkeys(one, "one.safetensors") | dict.fromkeys(two, "two.safetensors")
        assert spdnn.open_network(indexed(tmp_path, map_of, metadata=of_index), last="none").sha256() == wanted
    path = save(tmp_path / "a.safetensors", one, metadata={"fc9.weight": "fc8.weight", "head": "fc1.weight"})
    refuses("tensor 'head' is no weight of a layer", spdnn.open_network, path, last="none")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "an adapter, whose layers are in another file: merge it") for name in (
            "fc.lora_embedding_B", "fc.lora_A.default.weight", "to_q_lora.down.weight", "lora_te_fc.lora_up.weight",
            "fc.ia3_l", "fc.hada_w2_b", "fc.lokr_w1.weight", "fc.boft_R", "fc.randlora_A.weight", "adapter_up.weight",
            "base_model.model.fc.weight",
        )),
        *((name, "quantized weights: save the model") for name in (
            "fc.qweight", "fc.qzeros", "fc.weight.absmax", "fc.weight.quant_state.bitsandbytes__nf4", "fc.SCB",
            "fc.weight_scale_inv", "fc.weight_packed", "mlp.up_proj_blocks",
        )),
        *((name, "a parametrization, such as weight_norm: remove it") for name in (
            "fc.weight_g", "fc.weight_u", "parametrizations.weight.original0", "fc.parametrizations.weight.0._u",
        )),
    ],
)  # fmt: skip
def test_tensors_whose_names_say_what_they_are(tmp_path, name, said):
    tensors = {name: np.ones((4, 4), np.float32)}
    for ending in (".npz", ".safetensors"):
        for beside in ({}, made(("fc1", 4, 4))):
            path = save(tmp_path / f"a{ending}", beside | tensors)
            assert f"tensor {name!r} is of {said}" in refuses(path.name, spdnn.open_network, path, last="none")


def test_names_of_layers_may_be_like_them(tmp_path):
    for name in ("flora", "explorer", "veranda.0", "scales.1", "weights"):
        assert spdnn.open_network(save(tmp_path / "a.npz", made((name, 4, 4))), last="none").depth == 1


@pytest.mark.parametrize("name", ["checkpoint.pth.tar", "model.tar", "epoch=3.ckpt", "pytorch_model.bin"])
def test_what_torch_saved_under_another_name(tmp_path, name):
    (tmp_path / name).write_bytes(TORCH.read_bytes())
    assert spdnn.open_network(tmp_path / name, last="none").sha256() == spdnn.open_network(TORCH, last="none").sha256()
    (tmp_path / name).write_bytes(pickle.dumps({}, protocol=2))
    refuses(r"no sound zip archive, as torch writes since 1\.6", spdnn.open_network, tmp_path / name)


def test_a_number_in_a_name_may_be_long(tmp_path):
    names = [f"fc{digits}" for digits in ("1" * 5000, "2" * 5000, "09", "\u00b2")]
    tensors = made(*((name, 6, 6) for name in names[:2]))
    order = [name for name in tensors if name.endswith("weight")]
    network = spdnn.open_network(save(tmp_path / "a.safetensors", tensors), last="none")
    assert np.array_equal(network.layer(1).matrix().toarray(), tensors[order[1]].T)
    refuses("b.npz: ", spdnn.open_network, save(tmp_path / "b.npz", made(*((name, 6, 6) for name in names[2:]))))


def test_no_code_of_a_file_is_run(tmp_path):
    class Trap:
        def __init__(self, call, *arguments):
            self.reduced = call, arguments

        def __reduce__(self):
            return self.reduced

    for trap in (Trap(os.mkdir, str(tmp_path / "sprung")), Trap(eval, "1"), Trap(np.ones, 3)):
        for protocol in (2, 4):
            path = packed(tmp_path / "a.pt", pickle.dumps({"fc.weight": trap}, protocol))
            said = refuses("this is no state dict of torch.save", spdnn.open_network, path, last="none")
            assert "no code of a file is run" in said
    assert not (tmp_path / "sprung").exists()


def tensor(shape, strides=None, offset=0, count=4, key="0", kind="torch\nFloatStorage", more=b"", make="tensor_v2"):
    """The pickle of {'fc.weight': a tensor}, as torch writes one; `more`: what comes after its hooks."""

    def number(n):
        return b"J" + n.to_bytes(4, "little", signed=True)

    def numbers(many):
        return b"(" + b"".join(map(number, many)) + b"t"

    def text(word):
        return b"X" + len(word).to_bytes(4, "little") + word.encode()

    storage = b"(" + text("storage") + f"c{kind}\n".encode() + text(key) + text("cpu") + number(count) + b"tQ"
    strides = [1] * len(shape) if strides is None else strides
    arguments = b"(" + storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + b"}" + more + b"t"
    return b"\x80\2}(" + text("fc.weight") + f"ctorch._utils\n_rebuild_{make}\n".encode() + arguments + b"Ru."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tensor((2, 2), (2, 1), offset=1), "outside of its storage of 4"),
        (tensor((2, 3), (0, 0)), "outside of its storage of 4"),
        (tensor((2, 2), (-1, 1)), "strides are none"),
        (tensor((2, 2), count=5), "a storage of 5 numbers in 16 bytes"),
        (tensor((2, 2), count=-1), "a storage of -1 numbers in 16 bytes"),
        (tensor((2, 2), key="1"), "a storage that is not there"),
        (tensor((2, 2), more=b"}X\3\0\0\0foo\x88s"), "notes that are not known"),
        (tensor((2, 2), make="tensor_v3"), "no dictionary of tensors"),  # without a type
        (b"\x80\5\x96" + (1 << 40).to_bytes(8, "little") + b".", "the opcode 150"),  # BYTEARRAY8, allocated at once
        (b"\x80\2}" + b"r\xff\xff\xff\xff.", "no dictionary of tensors"),  # LONG_BINPUT, which a table would follow
        (b"\x80\2})" + b"\x86".join([b"q\1h\1h\1"] * 60) + b"K\1s.", "a name that is no text"),  # hashed for ever
        (b"\x80\2}" + b"(" * 1000, "its pickle is damaged"),
        (b"\x80\2" + b"]q\1h\1a.", "no dictionary of tensors"),
        (pickle.dumps([1, 2], 2), "no dictionary of tensors"),
        (b"", "its pickle is damaged"),
    ],
)  # fmt: skip
def test_hostile_pickles(tmp_path, content, said):
    path = packed(tmp_path / "a.pt", content, {"0": bytes(16)})
    tracemalloc.start()
    try:
        refuses(f"a.pt: this is no state dict of torch.save .*{said}", spdnn.open_network, path, last="none")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (tensor((2, 2), kind="torch\nQUInt8Storage"), "is of torch.QUInt8Storage"),
        (tensor((2, 2), kind="torch\nComplexDoubleStorage", more=b"}X\4\0\0\0conj\x88s"), "is of torch.ComplexDouble"),
        *((
            tensor((2, 2), kind="torch.storage\nUntypedStorage", more=f"ctorch\n{kind}\n".encode(), make="tensor_v3"),
            f"is of torch.{kind}",
        ) for kind in ("float8_e5m2", "float4_e2m1fn_x2", "uint16")),
        (tensor((2, 2), make="sparse_tensor"), "is sparse"),
        (tensor((2, 2), make="qtensor"), "is quantized"),
        (tensor((2, 2), make="meta_tensor_no_storage"), "is on the device meta, without data"),
        (tensor((2, 2), make="wrapper_subclass"), "is no plain tensor"),
    ],
)  # fmt: skip
def test_tensors_that_torch_alone_knows(tmp_path, content, said):
    path = packed(tmp_path / "a.pt", content, {"0": bytes(64)})
    said = refuses(f"a.pt: tensor 'fc.weight' {said}.*; tensors that are read are dense", spdnn.open_network, path)
    assert "state_dict" not in said  # which it is


@pytest.mark.parametrize(("kind", "data"), [("Half", np.float16([1, 2, 3, 4])), ("BFloat16", np.uint16([0x3F80] * 4))])
def test_numbers_that_torch_notes_as_negated(tmp_path, kind, data):
    path, kind = tmp_path / "a.pt", f"torch\n{kind}Storage"
    plain = TorchFile(packed(path, tensor((2, 2), (1, 2), kind=kind), {"0": data.tobytes()}))["fc.weight"]
    negated = tensor((2, 2), (1, 2), kind=kind, more=b"}X\3\0\0\0neg\x88s")
    assert np.array_equal(TorchFile(packed(path, negated, {"0": data.tobytes()}))["fc.weight"], -plain)


def test_checkpoints_of_several_state_dicts(tmp_path):
    def text(word):
        return b"X" + len(word).to_bytes(4, "little") + word.encode()

    one = tensor((2, 2), (2, 1))[2:-1]
    for entries, said in (
        (text("model") + one + text("epoch") + b"K\1", None),
        (text("model") + one + text("state_dict") + one, "it holds 'model' beside 'state_dict'"),
        (text("model") + one + text("fc2.weight") + one[16:-1], "it holds 'fc2.weight' beside 'model'"),
    ):
        path = packed(tmp_path / "a.pt", b"\x80\2}(" + entries + b"u.", {"0": bytes(16)})
        if said:
            refuses(f"a.pt: {said}; save one state dict alone", spdnn.open_network, path, last="none")
        else:
            assert spdnn.open_network(path, last="none").depth == 1


def test_archives_that_torch_does_not_write(tmp_path):
    good = tensor((2, 2), (2, 1))
    assert spdnn.open_network(packed(tmp_path / "a.pt", good, {"0": bytes(16)}), last="none").edges == 0
    for path, said in (
        (packed(tmp_path / "b.pt", good, {"0": bytes(16)}, compression=zipfile.ZIP_DEFLATED), "packed, which torch"),
        (packed(tmp_path / "c.pt", good, {"0": bytes(16), "1/data.pkl": b""}), "2 pickles in it"),
    ):
        refuses(said, spdnn.open_network, path, last="none")
    with zipfile.ZipFile(tmp_path / "a.pt", "a") as archive:
        archive.writestr("a/byteorder", "big")
    refuses(
        r"^/.*a\.pt: its numbers are in big-endian order, which is not read: torch\.save",
        spdnn.open_network,
        tmp_path / "a.pt",
        last="none",
    )
    (tmp_path / "a.pt").write_bytes(pickle.dumps({}))
    refuses("no sound zip archive, as torch writes since 1.6", spdnn.open_network, tmp_path / "a.pt", last="none")


def test_a_masked_weight_may_be_infinite(tmp_path):
    parts = {"weight_orig": [[1, 2], [3, np.inf]], "weight_mask": [[1, 1], [1, 0]], "bias": [0, 0]}
    np.savez(tmp_path / "s.npz", **{f"fc.{name}": np.array(part, np.float32) for name, part in parts.items()})
    network = spdnn.open_network(tmp_path / "s.npz", last="none")
    np.testing.assert_array_equal(network.layer(0).matrix().toarray(), [[1, 3], [2, 0]])
