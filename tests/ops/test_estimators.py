"""Estimators of scikit-learn, compiled: their own predict_proba and predict, whatever they were fitted on."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from refusals import refuses
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import spdnn

RANDOM = np.random.default_rng(5)
X = RANDOM.normal([5, 1e7, -3e-3, 0, 2, 0], [2, 30, 1e-4, 1, 1, 0], size=(120, 6))  # the last one is constant
LABELS = np.array(["no", "yes", "maybe"])[RANDOM.integers(3, size=len(X))]
TARGETS = {
    "binary": LABELS == "yes",
    "three classes": LABELS,
    "several labels": RANDOM.integers(2, size=(len(X), 3)),
    "number": 50 * (X[:, 0] + X[:, 3]),
    "number of counts": RANDOM.poisson(2, len(X)),
    "numbers": np.stack([X[:, 0], X[:, 4] * X[:, 3]], axis=1),
}
SCALERS = {
    "none": [],
    "standard": [StandardScaler()],
    "centred": [StandardScaler(with_std=False)],
    "uncentred": [StandardScaler(with_mean=False)],
    "range": [MinMaxScaler((-1, 3))],
    "clipped": [MinMaxScaler(clip=True)],
    "two": [MinMaxScaler(), "passthrough", StandardScaler()],
}


TARGETS |= {"one class": np.full(len(X), "only"), "classes of numbers": RANDOM.integers(3, size=len(X)) - 7}


def fitted(target, scalers=(), x=X, **options):
    kind = MLPRegressor if target.startswith("number") else MLPClassifier
    mlp = kind(**{"hidden_layer_sizes": (20, 10), "max_iter": 30, "random_state": 1} | options)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return (make_pipeline(*scalers, mlp) if scalers else mlp).fit(x, TARGETS[target])


def assert_same(model, estimator, x):
    expected = (estimator.predict_proba if hasattr(estimator, "predict_proba") else estimator.predict)(x)
    got = model(x)
    assert got.shape == expected.shape
    assert (model.inputs, model.outputs) == (x.shape[1], expected.shape[1] if expected.ndim == 2 else 1)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(1, abs(expected).max()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scalers", SCALERS)
def test_it_is_the_estimator(target, scalers):
    x = X if scalers not in ("none", "uncentred", "centred") else X / [1, 1e7, 1, 1, 1, 1]
    estimator = fitted(target, SCALERS[scalers], x)
    with spdnn.compile(estimator, threads=2) as model:
        assert_same(model, estimator, x)
        assert_same(model, estimator, x[:1].astype(np.float32))
        assert_same(model, estimator, 3 * x[:7])  # beyond what was fitted


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("names", [False, True])
def test_it_is_asked_as_an_estimator(target, names):
    x = pd.DataFrame(X, columns=list("abcdef")) if names else X
    estimator = fitted(target, SCALERS["standard"], x)
    model = spdnn.compile(estimator, threads=1)
    for given in (x, x[:1], x[:0] if target != "one class" else x[:2]):
        expected = estimator.predict(given) if len(given) else estimator.predict(x)[:0]
        found = model.predict(given)
        assert (found.shape, found.dtype.kind) == (expected.shape, expected.dtype.kind)
        if hasattr(estimator, "classes_"):
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert model.n_features_in_ == estimator.n_features_in_
    for name in ("classes_", "feature_names_in_"):
        assert hasattr(model, name) == hasattr(estimator, name)
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(model, name), getattr(estimator, name))
            assert getattr(model, name).dtype == getattr(estimator, name).dtype
    assert hasattr(model, "predict_proba") == hasattr(estimator, "predict_proba")
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(x), estimator.predict_proba(x), atol=1e-5)
    sent = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(sent.predict(x), model.predict(x))


@pytest.mark.parametrize(
    "options",
    [{"activation": "identity"}, {"hidden_layer_sizes": ()}, {"hidden_layer_sizes": (), "activation": "tanh"}],
)
@pytest.mark.parametrize("target", ["three classes", "number"])
def test_layers_without_relu(target, options):
    estimator = fitted(target, SCALERS["standard"], **options)
    assert_same(spdnn.compile(estimator, threads=1), estimator, X)


def test_counts_and_pipelines_in_pipelines():
    inner = fitted("number", SCALERS["two"])
    estimator = Pipeline([("scale", inner[:-1]), ("all", make_pipeline("passthrough", inner[-1]))])
    assert_same(spdnn.compile(estimator, threads=1), estimator, X)
    counts = fitted("number of counts", x=X[:, 3:], loss="poisson")
    assert_same(spdnn.compile(counts, threads=1), counts, X[:, 3:])


def test_other_arrays_and_classes():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    estimator = fitted("three classes", SCALERS["standard"], frame)
    model = spdnn.compile(estimator, threads=1)
    assert_same(model, estimator, frame)
    assert (model.classes[model(frame).argmax(axis=1)] == estimator.predict(frame)).all()
    refuses("^x has a column 'b' where the estimator was fitted with 'a'$", model, frame[list("bacdef")])
    refuses(r"^x has shape \(120, 5\)", model, frame[list("abcde")])
    np.testing.assert_array_equal(model(sp.csr_array(X)), model(X))
    assert model(X[:0]).shape == (0, 3)
    assert repr(model) == "EstimatorModel(6 -> 3, 3 layers, 350 edges, engine cpu, 1 thread, softmax)"
    model.close()
    refuses("^this model is closed", model, X)


class Doubled(MLPRegressor):
    def predict(self, X):
        return 2 * super().predict(X)


class NeuralNetClassifier:
    """Stands in for the class of skorch of this name, which may also be in a Pipeline."""

    __module__ = "skorch.classifier"

    def fit(self, X, y):
        self.module_ = object()
        return self


class OwnNet(NeuralNetClassifier):
    __module__ = "mine"


class Shifted(StandardScaler):
    def transform(self, X):
        return super().transform(X) + 1


REFUSED = {
    "tanh": (lambda: fitted("number", activation="tanh"), "^the activation of this MLPRegressor is 'tanh'"),
    "logistic": (
        lambda: fitted("binary", activation="logistic"),
        "^the activation of this MLPClassifier is 'logistic'",
    ),
    "another": (lambda: LogisticRegression(), "^LogisticRegression of scikit-learn: MLPClassifier and MLPRegressor"),
    "another step": (lambda: make_pipeline(PCA(), MLPClassifier()), "^PCA of scikit-learn: "),
    "no network": (lambda: make_pipeline(StandardScaler()), "^StandardScaler of scikit-learn: "),
    "not fitted": (MLPRegressor, r"^this MLPRegressor is not fitted; call fit\(\) first$"),
    "scaler not fitted": (lambda: make_pipeline(MinMaxScaler(), MLPRegressor()), "^this MinMaxScaler is not fitted"),
    "own predict": (
        lambda: Doubled(hidden_layer_sizes=(5,), max_iter=5).fit(X[:, 3:], X[:, 0]),
        "^compiled, this Doubled gives other",
    ),
    "a net of skorch": (
        lambda: NeuralNetClassifier().fit(X, None),
        r"^a NeuralNetClassifier of skorch: spdnn\.compile\(net\.module_\) compiles its module, without the softmax",
    ),
    "a class of it": (OwnNet, r"^a OwnNet of skorch: call its fit\(\), and then spdnn\.compile\(net\.module_\)"),
    "in a Pipeline": (
        lambda: Pipeline([("scale", StandardScaler().fit(X)), ("net", NeuralNetClassifier())]),
        r"^a NeuralNetClassifier of skorch: call its fit\(\), and then",
    ),
    "own transform": (lambda: fitted("number", [Shifted()]), "^compiled, this Pipeline gives other numbers"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_compiled(case):
    make, sentence = REFUSED[case]
    refuses(sentence, spdnn.compile, make(), threads=1)


def test_scikit_learn_is_not_imported():
    code = "import spdnn, sys, numpy; spdnn.compile(spdnn.from_matrices([numpy.eye(2)], last='none')); " \
           "assert not {'sklearn', 'scipy.special'} & sys.modules.keys()"  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)
