"""Matrix Market, SciPy and NumPy files, and .safetensors: what they hold, and what is refused, by file and line."""

import gzip
import json
import os
import struct

import numpy as np
import pandas
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from safetensors.numpy import save_file
from scipy.io import mmread, mmwrite

from spdnn.core import network
from spdnn.core.errors import InputError
from spdnn.core.network import Activation
from spdnn.formats import matrices
from spdnn.formats.readers import open_inputs, open_network

HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.fixture
def pair():
    rng = np.random.default_rng(6)
    return [sp.random_array(shape, density=0.4, rng=rng, dtype=np.float32) for shape in ((5, 7), (7, 3))]


def read_network(path, last="relu", **options):
    """A network of matrices (inputs, outputs), or of a state dict, as its user states it."""
    rows = {} if path.suffix == ".safetensors" else {"rows": "inputs"}
    return open_network(path, last=last, **rows, **options)


def refused(path, said, read=read_network, **options):
    assert path.name in refuses(said, read, path, **options)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_matrix_market_round_trip(tmp_path_factory, data):
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    values = data.draw(st.lists(numbers, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    matrix = np.array(values, np.float32).reshape(shape)
    path = tmp_path_factory.mktemp("mtx") / "a.mtx"
    for stored in (sp.coo_array(matrix), matrix):
        mmwrite(path, stored, precision=9)
        read = read_network(path)
        assert np.array_equal(read.layer(0).matrix().toarray(), matrix)


def test_matrix_market_kinds(tmp_path):
    path = tmp_path / "a.mtx"

    def read(text):
        path.write_text(text)
        return read_network(path).layer(0).matrix().toarray().tolist()

    assert read(HEAD + "% note\n\n2 2 1\n\n2 1 5\n") == [[0, 0], [5, 0]]
    assert read("%%matrixmarket MATRIX Coordinate pattern symmetric\n2 2 2\n1 1\n2 1") == [[1, 1], [1, 0]]
    assert read("%%MatrixMarket matrix coordinate integer skew-symmetric\n2 2 1\n2 1 3\n") == [[0, -3], [3, 0]]
    assert read(HEAD + "2 2 0\n") == [[0, 0], [0, 0]]
    assert read("%%MatrixMarket matrix array real general\n1 2\n3\n4\n") == [[3, 4]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", ":1: this is not Matrix Market"),
        ("", ":1: this is not Matrix Market"),
        (HEAD.replace("real", "complex") + "1 1 0\n", ":1: a matrix that is complex and general"),
        (HEAD.replace("general", "hermitian") + "1 1 0\n", ":1: a matrix that is real and hermitian"),
        (HEAD.replace("coordinate", "other") + "1 1 0\n", ":2: '1 1 0' is not the size"),
        (HEAD, ":2: '' is not the size"),
        (HEAD + "%\n2 x 1\n", ":3: '2 x 1' is not the size"),
        (HEAD + "2 2\n", ":2: '2 2' is not the size"),
        (HEAD + "0 2 0\n", ":2: '0 2 0' is not the size"),
        (HEAD + "2 2 2\n1 1 1\n", ": 1 entries, though line 2 says 2; is the file cut short"),
        (HEAD + "2 2 1\n1 1 1\n1 2 1\n", ": 2 entries, though line 2 says 1"),
        (HEAD + "%\n2 2 2\n1 1 1\n3 1 1\n", ":5: row '3' is not one of 1 to 2"),
        (HEAD + "2 2 1\n1 0 1\n", ":3: column '0' is not one of 1 to 2"),
        (HEAD + "2 2 2\n1 1 1\n\n1 2 nan\n", ":5: value 'nan' is not a finite number"),
        (HEAD + "2 2 1\n1 1 1e40\n", ":3: value '1e40' is not a finite number that float32 can hold"),
        (HEAD + "2 2 1\n1 1 1x\n", ":3: value '1x'"),
        (HEAD + "2 2 1\n1 1\n", ":3: '1 1' has 2 of 3 fields; a line is row, column, value, parted by blanks"),
        (HEAD + "2 2 3\n1 1 1\n2 1 1\n1 1 3\n", ":5: row 1, column 1 is given twice"),
        (HEAD.replace("general", "symmetric") + "2 2 2\n2 1 1\n1 2 3\n", ":4: row 1, column 2 is given twice"),
        (HEAD.replace("general", "symmetric") + "2 3 1\n2 1 1\n", ":2: 2 x 3 and symmetric; such a matrix is square"),
        (HEAD.replace("general", "skew-symmetric") + "3 2 0\n", ":2: 3 x 2 and skew-symmetric; such a matrix is"),
        (HEAD + "999999999 999999999 1\n1 1 1\n", ":2: a size of 999999999; at most 134217728 neurons"),
        (HEAD + "1 99999999999 1\n1 1 1\n", ":2: a size of 99999999999; at most 134217728 neurons"),
        (HEAD.replace("coordinate", "array") + "70000 70000\n1\n", ":2: the file is too short to hold 70000 x 70000"),
        (HEAD.replace("coordinate", "array") + "2 2\n1\n", ":2: the file is too short to hold 2 x 2 numbers"),
        (HEAD.replace("coordinate", "array") + "2 2\n10\n1\n22\n", ": 3 numbers, though line 2 says 4"),
        (HEAD.replace("coordinate", "array") + "1 2\n1\n1x\n", ": number 2 after line 2, '1x', is none"),
        (HEAD.replace("coordinate", "array") + "1 2\n1\n2\n@", ": 3 numbers, though line 2 says 2"),
    ],
)
def test_matrix_market_faults(tmp_path, packed, text, said):
    path = tmp_path / ("a.mtx.gz" if packed else "a.mtx")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    refused(path, said if "sound" in said else rf"a\.mtx(\.gz)?{said}")
    if packed:
        path.write_bytes(path.read_bytes()[:-6])
        refused(path, "the gzip data is cut short")


def test_folder_in_natural_order(tmp_path, pair):
    for name, matrix in (("l2", pair[0]), ("l10", pair[1])):
        sp.save_npz(tmp_path / f"{name}.npz", matrix.tocsr())
        (tmp_path / "notes.md").write_text("not a layer")
    read = read_network(tmp_path, bias=-0.5, clip=4, last="none")
    wanted = network.from_matrices(pair, -0.5, 4, last="none")
    assert read.sha256() == wanted.sha256()
    assert read.description == {"source": "matrices", "path": tmp_path.name, "sha256": wanted.sha256()}
    assert read_network(tmp_path, layers=1).layer(0).activation == Activation("relu")
    refused(tmp_path, "3 layers asked for; it has 2", layers=3)
    refuses("0 layers asked for; a network has at least 1", read_network, tmp_path, layers=0)
    (tmp_path / "l11.mtx").write_text(HEAD + "3 3 0\n")
    refused(tmp_path, "it holds both .mtx and .npz files")


def test_list_of_files(tmp_path, pair):
    (tmp_path / "sub").mkdir()
    mmwrite(tmp_path / "sub" / "z.mtx", pair[0], precision=9)
    sp.save_npz(tmp_path / "a.npz", pair[1])
    path = tmp_path / "net.txt"
    path.write_text("sub/z.mtx\n\na.npz\n")
    assert read_network(path).sha256() == network.from_matrices(pair, last="relu").sha256()
    for text, said in (
        ("a.npz\n\nnone.mtx\n", r"net\.txt:3: there is no file .*none\.mtx"),
        ("a.py\n", r"net\.txt:1: 'a\.py' is not a \.mtx, \.mtx\.gz or \.npz file"),
        ("\n", r"net\.txt: the list is empty"),
        ("x" * 300 + ".npz\n", r"net\.txt:1: .*x\.npz: it cannot be read \(File name too long\)"),
        ("a.npz\nsub/z.mtx\n", r"net\.txt: layer 2 takes 5 inputs but layer 1 has 3 outputs"),
    ):
        path.write_text(text)
        refused(path, said)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_scipy_formats(tmp_path, pair, form):
    path = tmp_path / "a.npz"
    sp.save_npz(path, pair[0].asformat(form))
    assert read_network(path).sha256() == network.from_matrices(pair[:1], last="relu").sha256()


def csr(data, indices, indptr, shape=(2, 2), form=b"csr"):
    return {"format": form, "shape": shape, "data": data, "indices": indices, "indptr": indptr}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (csr([1.0], [2], [0, 1, 1]), "no sound .npz file"),
        (csr([1.0], [-1], [0, 1, 1]), "no sound .npz file"),
        (csr([1.0], [0], [0, 2, 1]), "no sound .npz file"),
        (csr([1.0], [0], [0, 1, 9]), "no sound .npz file"),
        (csr([1.0], [0], [0, 1, 1], form=b"xyz"), "no sound .npz file"),
        (csr([np.nan], [0], [0, 1, 1]), "a weight is NaN or infinite"),
        (csr([1e300], [0], [0, 1, 1]), "a weight is NaN or infinite"),
        (csr([1j], [0], [0, 1, 1]), "are not real numbers"),
        ({"format": b"csr", "data": [1.0]}, "no sound .npz file"),
        ({"format": b"coo", "shape": (2, 2), "data": [1.0], "row": [-1], "col": [0]}, "no sound .npz file"),
        ({"format": b"coo", "shape": (2, 2), "data": [1.0], "row": [2], "col": [0]}, "no sound .npz file"),
        (csr([1.0], [0], [0, 1], shape=(1, 999999999)), "a size of 999999999; at most 134217728 neurons"),
        ({"a": np.ones((0, 999999999))}, "a size of 999999999; at most 134217728 neurons"),
        (
            {"a": [1.0], "b": [2.0]},
            "2 arrays .a, b.; those of a network are NAME.weight .outputs, inputs. and NAME.bias; or use spdnn.from_m",
        ),
        ({"a": [1.0]}, "a layer is a matrix, not an array of 1 dimensions"),
        ({"a": np.array([[{}]], dtype=object)}, "no sound .npz file"),
    ],
)
def test_npz_faults(tmp_path, arrays, said):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    refused(path, said)


def test_a_sentence_names_its_file_once(tmp_path):
    (tmp_path / "layers").mkdir()
    for name, matrix in (("a.npz", np.ones((2, 3), np.complex64)), ("layers/b.npz", np.full((2, 3), np.inf))):
        np.savez(tmp_path / name, matrix)
        path = tmp_path / name.split("/")[0]
        said = refuses("not real numbers|NaN or infinite", open_network, path, last="none")
        assert said.count(name.split("/")[-1]) == said.count(str(tmp_path)) == 1


def test_dense_layers_and_names_that_lie(tmp_path):
    dense = np.array([[0, 0.5], [1, 0]], np.float16)
    np.savez(tmp_path / "a.npz", dense)
    assert np.array_equal(read_network(tmp_path / "a.npz").layer(0).matrix().toarray(), dense)
    np.save(tmp_path / "b.npy", dense)
    assert np.array_equal(matrices.open_inputs(tmp_path / "b.npy").dense(np.arange(2)), dense)
    os.rename(tmp_path / "a.npz", tmp_path / "c.npy")
    os.rename(tmp_path / "b.npy", tmp_path / "d.npz")
    refused(tmp_path / "c.npy", "no sound .npy file", read=matrices.open_inputs)
    refused(tmp_path / "d.npz", "no sound .npz file")


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    trap = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", data=trap)
    np.savez(tmp_path / "b.npz", format=trap, data=trap)
    for name in ("a.npy", "a.npz", "b.npz"):
        refused(tmp_path / name, "this is no sound", read=matrices.open_inputs)
    assert not (tmp_path / "sprung").exists()


def test_inputs(tmp_path, pair):
    real, bits = pair[0].toarray(), (pair[0].toarray() != 0).astype(np.int8)
    sp.save_npz(tmp_path / "sparse.npz", pair[0])
    np.savez_compressed(tmp_path / "one.npz", real)
    np.save(tmp_path / "a.npy", bits)
    mmwrite(tmp_path / "a.mtx", pair[0], precision=9)
    for name, kind, wanted in (
        ("sparse.npz", "csr", real),
        ("one.npz", "dense", real),
        ("a.npy", "bits", bits),
        ("a.mtx", "csr", real),
    ):
        inputs = matrices.open_inputs(tmp_path / name)
        assert inputs.kind == kind
        assert np.array_equal(inputs.dense(np.arange(5)), wanted)
        assert inputs.description == {"source": "matrix", "path": name, "sha256": inputs.sha256}
    for array in (np.ones(3), np.ones((2, 2), complex), np.ones((0, 2)), np.array([["a"]])):
        np.save(tmp_path / "a.npy", array)
        refused(tmp_path / "a.npy", "inputs must be a real matrix", read=matrices.open_inputs)
    np.save(tmp_path / "a.npy", np.ones((5, 2, 3)))
    refused(tmp_path / "a.npy", r"not float64 .5, 2, 3.; x\.reshape.5, 6. is one", read=matrices.open_inputs)
    np.savez(tmp_path / "a.npz", x=np.eye(3), y=np.ones(3))
    refused(tmp_path / "a.npz", "2 arrays .x, y.; inputs are one array: save it alone", read=matrices.open_inputs)
    np.save(tmp_path / "a.npy", np.array([[np.inf]]))
    refused(tmp_path / "a.npy", "must be finite", read=matrices.open_inputs)


def tensors(pair):
    first, second = (matrix.toarray().T.copy() for matrix in pair)
    return {"fc10.weight": second, "fc2.weight": first, "fc2.bias": np.linspace(-1, 1, 7, dtype=np.float32)}


def test_safetensors(tmp_path, pair):
    path = tmp_path / "a.safetensors"
    made = tensors(pair)
    save_file(made, path)
    read = read_network(path, clip=2, last="none")
    wanted = network.from_matrices(pair, [made["fc2.bias"], 0.0], 2, last="none")
    assert read.sha256() == wanted.sha256()
    assert read.description["source"] == "safetensors"
    assert read_network(path, layers=1).layer(0).activation == Activation("relu")
    refused(path, "3 layers asked for; it has 2", layers=3)
    refused(path, r"bias -1 given, but the file has biases of its own \(fc2\.bias\)", bias=-1)
    save_file({}, path)
    refused(path, "no tensor in it is named '<prefix>.weight'")
    save_file({"weight": made["fc2.weight"]}, path)
    assert read_network(path, bias=-1).layer(0).bias == -1


@pytest.mark.parametrize("kind", ["F16", "BF16", "F32", "F64"])
def test_safetensors_types(tmp_path, kind):
    matrix = np.array([[1.5, 0, -0.0], [-2, 0.25, 384]])
    if kind == "BF16":
        stored = (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        stored = matrix.astype({"F16": np.float16, "F32": np.float32, "F64": np.float64}[kind])
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a.weight": {"dtype": kind, "shape": [2, 3], "data_offsets": [0, stored.nbytes]},
        }
    ).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + stored.tobytes())
    layer = read_network(path).layer(0)
    assert np.array_equal(layer.matrix().toarray(), matrix.T)
    assert layer.edges == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"norm": np.ones(7, np.float32)}, "tensor 'norm' is no weight of a layer"),
        ({"fc3.bias": np.ones(7, np.float32)}, r"tensor 'fc3\.bias' is no weight of a layer"),
        ({"fc2.bias": np.ones(6, np.float32)}, r"fc2\.bias is \(6,\); it must be \(7,\)"),
        ({"fc2.weight": np.ones(7, np.float32)}, r"fc2\.weight has 1 dimensions"),
        ({"fc2.weight": np.ones((999999999, 0), np.float32)}, r"fc2\.weight: a size of 999999999; at most"),
        ({"fc2.weight": np.ones((7, 5), np.int32)}, r"fc2\.weight is of type I32; it must be one of F16, BF16"),
        ({"fc2.weight": np.full((7, 5), np.nan, np.float32)}, r"fc2\.weight: a weight is NaN"),
        ({"fc2.weight": np.full((7, 5), 1e300)}, r"fc2\.weight: a weight is NaN or infinite"),
        ({"fc2.bias": np.full(7, np.inf, np.float32)}, r"fc2\.weight: a bias is NaN"),
        ({"fc2.weight": np.ones((6, 5), np.float32), "fc2.bias": np.ones(6, np.float32)}, "layer 2 takes 7 inputs"),
    ],
)
def test_safetensors_faults(tmp_path, pair, change, said):
    path = tmp_path / "a.safetensors"
    save_file({**tensors(pair), **change}, path)
    refused(path, said)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_arrays_of_matrix_market_as_scipy_reads_them(tmp_path, symmetry):
    rng, path = np.random.default_rng(3), tmp_path / "a.mtx"
    for size in (1, 2, 5):
        matrix = rng.integers(-4, 5, (size, size if symmetry != "general" else size + 2)) / 4
        if symmetry == "symmetric":
            matrix = matrix + matrix.T
        if symmetry == "skew-symmetric":
            matrix = matrix - matrix.T
        mmwrite(path, matrix, symmetry=symmetry)
        assert np.array_equal(matrices.read_matrix(path), matrix)
        assert np.array_equal(matrices.read_matrix(path), mmread(path))


def test_any_byte_of_an_archive_changed_is_refused_or_read(tmp_path):
    """NumPy, zipfile and the decompressors raise nearly anything; each is one short sentence here."""
    matrix, path = sp.random_array((9, 7), density=0.4, rng=np.random.default_rng(0)), tmp_path / "a.npz"
    for save in (lambda: sp.save_npz(path, matrix), lambda: np.save(tmp_path / "a.npy", matrix.toarray())):
        save()
        for file in tmp_path.iterdir():
            content = file.read_bytes()
            for place in range(0, len(content), 3):
                other = bytearray(content)
                other[place] ^= 1 << place % 8
                file.write_bytes(other)
                try:
                    matrices.open_inputs(file)
                except InputError as error:
                    said = str(error)
                    assert "\n" not in said
                    assert len(said.replace(str(file), "")) < 300
            file.write_bytes(content)


@pytest.mark.parametrize("text", ["0.5,-2e3\n\n1, 7\n", "a,b\n0.5,-2e3\n1,7", "\ufeff0.5,-2e3\r\n1,7\r\n"])
def test_inputs_of_csv(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text.encode())
    found = open_inputs(tmp_path / "x.csv", count=2)
    np.testing.assert_array_equal(found.dense(np.arange(2)), np.array([[0.5, -2000], [1, 7]], np.float32))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.uint8])
@pytest.mark.parametrize("width", [1, 2, 3, 12])
def test_a_heading_of_numbers_is_known_or_refused(tmp_path, width, kind):
    x = np.random.default_rng(width).integers(0, 2, (5, width)).astype(kind)
    pandas.DataFrame(x).to_csv(tmp_path / "x.csv", index=False)
    if width > 2 and kind in (np.float32, np.float64):
        assert (open_inputs(tmp_path / "x.csv").dense(np.arange(5)) == x).all()
    else:
        refuses(r"x\.csv:1: '0.*' may be a heading or a row; leave out the heading", open_inputs, tmp_path / "x.csv")


@pytest.mark.parametrize("text", ["0,1,2\n3,4,5", "0, 1, 2\n0.5,7,0.5", "0,1\n1,0", "0\n0.5", "0,1,2\n", "\n0,1\n\n"])
def test_a_row_that_numbers_columns_is_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    refuses("may be a heading or a row", open_inputs, tmp_path / "x.csv")
    first, rest = text.lstrip().split("\n", 1)
    (tmp_path / "x.csv").write_text(f"{first.replace('0', '0.0', 1)}\n{rest}")
    assert open_inputs(tmp_path / "x.csv").dense([0]).tolist() == [[float(k) for k in range(first.count(",") + 1)]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a,b\n1,cat\n",
            r"x\.csv:2: value 'cat' is not a finite number that float32 can hold; a row has such numbers, sep",
        ),
        ("1,b\n", r"x\.csv:1: value 'b' is not a finite number"),
        ("nan,nan\n", r"x\.csv:1: value 'nan' is not a finite number"),
        ("1\n1e39\n", r"x\.csv:2: value '1e39' is not a finite number"),
        ("1_0\n", r"x\.csv:1: value '1_0' is not a finite number"),
        ("1,\n", r"x\.csv:1: an empty field; neither that nor an index of rows is allowed"),
        (",0,1\n0,5,6\n", r"x\.csv:1: an empty field"),
        (",a,b\n0,5,6\n", r"x\.csv:1: an empty field"),
        ("1;2\n3;4\n", r"x\.csv:2: value '3;4' is not one number: separate numbers by commas"),
        ("a b\n3.0 4e1\n", r"x\.csv:2: value '3\.0 4e1' is not one number: separate numbers by commas"),
        ("a,b\nc,d\n", r"x\.csv:2: value 'c' is not a finite number"),
        ("1,2\n\n1\n", r"x\.csv:3: 1 numbers; the rows before have 2, as all must"),
        ("a,b\n", r"x\.csv: it holds no row of numbers, separated by commas"),
        ("1\0", r"x\.csv: this is no text file"),
    ],
)
def test_csv_that_holds_no_inputs(tmp_path, text, said):
    (tmp_path / "x.csv").write_text(text)
    refuses(said, open_inputs, tmp_path / "x.csv")
