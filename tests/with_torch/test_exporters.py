"""spdnn.compile of what scikit-learn (skl2onnx) and Keras export: labels with probabilities, images of NHWC."""

import os

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import spdnn

os.environ["KERAS_BACKEND"] = "torch"
import keras

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS.astype(np.float32)


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """All products with few nonzeros are ours."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


def thinned(*weights):
    """Nine of ten numbers become zero, in place."""
    for weight in weights:
        weight[np.random.default_rng(0).random(weight.shape) > 0.1] = 0


NEURONS, TREES = MLPClassifier((96, 64), max_iter=300), RandomForestClassifier(5)


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(("classifier", "scaler", "ours"), [(NEURONS, [StandardScaler()], 2), (TREES, [], 0)])
def test_scikit_learn(tmp_path, classifier, scaler, ours, zipmap):
    pipeline = make_pipeline(*scaler, classifier).fit(DIGITS[:300], LABELS[:300])
    thinned(*getattr(classifier, "coefs_", [])[:2])
    graph = to_onnx(pipeline, DIGITS[:1], options={id(classifier): {"zipmap": zipmap}})
    path = tmp_path / "a.onnx"
    path.write_bytes(graph.SerializeToString())
    model = spdnn.compile(path)
    assert f"{ours} of {ours}" in repr(model)
    labels, scores = model(DIGITS)
    wanted = pipeline.predict_proba(DIGITS)
    found = np.array([[score[n] for n in range(10)] for score in scores]) if zipmap else scores
    assert np.abs(found - wanted).max() < 1e-4
    sure = np.diff(np.sort(wanted)[:, -2:])[:, 0] > 1e-3
    assert (labels == pipeline.predict(DIGITS))[sure].all()


@pytest.mark.filterwarnings("ignore")  # of torch, about the Python that Keras runs
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_keras(tmp_path, padding):
    layers = keras.layers
    module = keras.Sequential(
        [
            keras.Input((9, 8, 3)),
            layers.Conv2D(64, 3, 2, padding=padding, activation="relu"),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.BatchNormalization(),
            layers.Conv2D(64, 1),
            layers.ReLU(6.0),
            layers.Conv2D(32, 3, padding=padding, activation="gelu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    for one in (module.layers[3], module.layers[5]):
        weights = one.get_weights()
        thinned(weights[0])
        one.set_weights(weights)
    x = np.random.default_rng(0).standard_normal((5, 9, 8, 3)).astype(np.float32)
    wanted = np.asarray(module(x).detach())
    module.export(tmp_path / "a.onnx", format="onnx", verbose=False)
    model = spdnn.compile(tmp_path / "a.onnx")
    assert "2 of 2" in repr(model)
    for count in (1, 5):
        assert np.abs(model(x[:count]) - wanted[:count]).max() < 1e-5
