"""Models of other programs: each is refused by a sentence that says what it is and what to do, by name or content."""

import pytest
from refusals import refuses

import spdnn
from spdnn.formats.detection import FOREIGN
from spdnn.formats.matrices import read_matrix

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(100)


@pytest.mark.parametrize("ending", [ending for endings, *_ in FOREIGN for ending in endings])
def test_every_format_by_its_name(ending, tmp_path):
    path = tmp_path / (ending if ending[0] != "." else f"M{ending.upper()}")
    path.write_bytes(b"whatever")
    said = r" is not read; .*(ONNX|torch|from_matrices|compile|save|language models)"
    refuses(said, spdnn.open_network, path, last="none")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model", HDF5, r"HDF5 is not read; export a Keras model to ONNX: model\.export"),
        ("weights.npz", HDF5, "HDF5 is not read"),
        ("model.safetensors", HDF5, "HDF5 is not read"),
        ("a", b"\x1c\0\0\0TFL3" + bytes(9), "tf2onnx.convert --tflite"),
        ("a", b"GGUF" + bytes(9), "a GGUF file"),
        ("a", b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "scipy.io.loadmat"),
    ],
)
def test_some_by_their_content_whatever_the_name(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    for read in (spdnn.open_network, spdnn.compile):
        refuses(said, read, tmp_path / name)


def test_a_folder_of_tensorflow(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    refuses("a TensorFlow model is not read; .* tf2onnx.convert --saved-model", spdnn.open_network, tmp_path)


def test_no_file_of_another_program_is_called_one_of_ours(tmp_path):
    path = tmp_path / "x.h5"
    path.write_bytes(HDF5)
    refuses(r"x\.h5: inputs are \.safetensors", spdnn.open_inputs, path)
    refuses(r"x\.h5: a matrix is in a \.npz, \.npy, \.mtx, \.mtx\.gz or \.csv file", read_matrix, path)
