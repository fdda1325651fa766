"""Files of models that other programs write and that are not read here: what each is, and the way from it to here."""

from pathlib import Path

from spdnn.core.errors import InputError

FORMATS = (  # what names end with, what such a file is, and what to do
    ((".h5", ".hdf5"), "HDF5", 'export a Keras model to ONNX: model.export("model.onnx", format="onnx")'),
    ((".keras",), "a Keras model", 'export it to ONNX: model.export("model.onnx", format="onnx")'),
    (("saved_model.pb",), "a TensorFlow model", "python -m tf2onnx.convert --saved-model makes an ONNX model of it"),
    ((".pb",), "a TensorFlow graph", "python -m tf2onnx.convert --graphdef makes an ONNX model of it"),
    ((".tflite", ".lite"), "a TFLite model", "python -m tf2onnx.convert --tflite makes an ONNX model of it"),
    (
        (".pkl", ".pickle", ".joblib"),
        "a pickle",
        "it may run code. Load it, and spdnn.compile takes an MLPClassifier or MLPRegressor of scikit-learn",
    ),
    (
        (".pt2", ".ptl", ".ckpt", ".bin"),
        "a model or checkpoint of PyTorch",
        'torch.save(model.state_dict(), "model.pt") writes what is read, and spdnn.compile takes the module itself',
    ),
    ((".msgpack",), "a checkpoint of Flax", "safetensors.flax.save_file writes what is read"),
    ((".mat",), "a MATLAB file", "scipy.io.loadmat reads it, and scipy.sparse.save_npz writes its matrices"),
    ((".csv",), "CSV", "give its matrices to spdnn.from_matrices: numpy.loadtxt(path, delimiter=',') reads one"),
    ((".gguf",), "a GGUF file", "language models are not run here"),
    (
        (".xml", ".pmml", ".mlmodel", ".mlpackage", ".ort", ".engine", ".plan", ".trt", ".pdmodel", ".caffemodel"),
        "a model for another runtime",
        "export the model that it was made of to ONNX",
    ),
)


def refuse(path: Path, name: str) -> None:
    """Raise InputError, with what to do instead, where `name`, of `path` or of what is in it, is of one of FORMATS."""
    for endings, what, instead in FORMATS:
        if name.lower().endswith(endings):
            raise InputError(f"{path}: {what} is not read; {instead}")
