"""ONNX models that are no file: bytes, open files and protos; and paths as people write them."""
# ruff: noqa: SIM115

import io
import os
import pickle
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import Maker, close, convolutional, outputs
from refusals import refuses

import spdnn
from spdnn.formats.detection import NO_FILE
from spdnn.formats.readers import network_files


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPDNN_TUNING", "off")


def zipped(path):
    with zipfile.ZipFile("models.zip", "w") as archive:
        archive.write(path)
    return zipfile.ZipFile("models.zip").open(path)


def temporary(path):
    file = tempfile.NamedTemporaryFile()
    file.write(Path(path).read_bytes())
    file.seek(0)
    return file


FORMS = {
    "bytes": lambda path: Path(path).read_bytes(),
    "a bytearray": lambda path: bytearray(Path(path).read_bytes()),
    "a memoryview": lambda path: memoryview(Path(path).read_bytes()),
    "a proto": onnx.load,
    "BytesIO": lambda path: io.BytesIO(Path(path).read_bytes()),
    "an open file": lambda path: Path(path).open("rb"),
    "a member of an archive": zipped,
    "a temporary file": temporary,
    "a path": Path,
    "a path as bytes": os.fsencode,
    "upper case": lambda path: os.rename(path, "MODEL.ONNX") or "MODEL.ONNX",
}


@pytest.mark.parametrize("form", FORMS)
def test_models_that_no_network_is(form):
    made, x = convolutional(3)
    expected = outputs(made.save("a.onnx"), x)
    given = FORMS[form]("a.onnx")
    before = given.SerializeToString() if isinstance(given, onnx.ModelProto) else b""
    model = spdnn.compile(given, threads=1)
    assert isinstance(model, spdnn.OnnxModel)
    assert close(model(x), expected)
    if isinstance(given, onnx.ModelProto):
        assert given.SerializeToString() == before
        given.Clear()
    assert close(model(x), expected)
    assert close(pickle.loads(pickle.dumps(model))(x), expected)


@pytest.mark.parametrize("form", FORMS)
def test_chains(form):
    made = chain_of_layers()
    network = spdnn.open_network(made)
    x = np.float32([[1, 0, 2, 5]])
    given = FORMS[form](made)
    assert spdnn.open_network(given).sha256() == network.sha256()
    if hasattr(given, "seek"):
        given.seek(0)
    assert (spdnn.compile(given, threads=1)(x) == spdnn.compile(network, threads=1)(x)).all()


def chain_of_layers():
    made = Maker(4)
    made.add("MatMul", np.eye(4, 3, dtype=np.float32))
    made.add("Relu")
    return made.save("chain.onnx")


def test_weights_in_other_files():
    made, x = convolutional(3)
    path = made.save("a.onnx", save_as_external_data=True, location="weights")
    sentence = rf"^{NO_FILE} has weights in other files \('c\d+'\), .*: give the path of its \.onnx file"
    for given in (Path(path).read_bytes(), onnx.load(path, load_external_data=False)):
        refuses(sentence, spdnn.compile, given, threads=1)
        refuses(sentence, spdnn.open_network, given)
    refuses(sentence, spdnn.compile, Path(path).open("rb"), threads=1)
    assert close(spdnn.compile(onnx.load(path), threads=1)(x), outputs(path, x))


def saved(save, *arguments, **options):
    save(file := io.BytesIO(), *arguments, **options)
    return file.getvalue()


REFUSED = {
    "no bytes": (lambda: b"", r"^these bytes: the content is empty; save it as a file, and give the path$"),
    "an archive": (
        lambda: saved(np.savez, **{"0.weight": np.eye(3)}),
        "^these bytes: the content is no ONNX model; save",
    ),
    "safetensors": (
        lambda: (20).to_bytes(8, "little") + b'{"__metadata__":{}}  ',
        r"^these bytes: the content is of a \.safetensors file; save it as a file, and give the path$",
    ),
    "text": (
        lambda: Path("b.txt").open("w+"),
        r"^this file \(b\.txt\) is open as text: open it with 'rb', or give its path$",
    ),
    "closed": (lambda: closed_file(), r"^this file \(a\.bin\) cannot be read; give its path \("),
    "its end": (lambda: io.BytesIO(), r"^this file \(BytesIO\): the content is empty"),
    "damaged": (lambda: b"\x08\x08\x12\x00\xff" * 9, f"^{NO_FILE}: ONNX Runtime cannot run it: "),
    "a path of nothing": (lambda: b"nothing.onnx", r"^nothing\.onnx: there is no such model file or folder$"),
}


def closed_file():
    with open("a.bin", "wb+") as file:
        return file


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_taken(case):
    make, sentence = REFUSED[case]
    refuses(sentence, spdnn.compile, make(), threads=1)
    refuses(sentence, spdnn.open_network, make())


def test_what_models_in_memory_state():
    content = Path(chain_of_layers()).read_bytes()
    refuses(f"^{NO_FILE}: leave out --bias", spdnn.open_network, content, bias=1)
    refuses(f"^{NO_FILE}: a network of 4 input neurons, not 5$", spdnn.open_network, content, neurons=5)
    assert spdnn.open_network(content, layers=np.int64(1)).depth == 1


def test_endings_in_capitals():
    np.save("X.NPY", np.eye(3))
    os.rename("X.NPY.npy", "X.NPY")
    np.savez("w.npz", np.eye(3))
    os.rename("w.npz", "W.NPZ")
    Path("L.MTX").write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1.0\n")
    assert spdnn.open_inputs("X.NPY").count == spdnn.open_inputs(b"X.NPY").count == 3
    assert spdnn.open_network("W.NPZ", last="relu", rows="inputs").edges == 3
    assert spdnn.open_network("L.MTX", last="relu", rows="inputs").edges == 1
    Path("LIST.TXT").write_text("L.MTX\n")
    assert [path.name for path in network_files("LIST.TXT")] == ["LIST.TXT", "L.MTX"]
    assert spdnn.open_network("LIST.TXT", last="relu", rows="inputs").edges == 1
