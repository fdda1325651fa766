"""scikit-learn's MLPClassifier and MLPRegressor, also behind scalers in a Pipeline, as compiled models.

scikit-learn is never imported here: who has an estimator has imported it, so its classes are in sys.modules.
"""

import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from spdnn.core import arrays
from spdnn.core.closeness import LAYERS_TOLERANCE, disagreement
from spdnn.core.errors import InputError
from spdnn.core.graphs import outside_graphs
from spdnn.core.network import IDENTITY, RELU, Layer, MemoryNetwork, check_sparse
from spdnn.core.shown import WithRepr
from spdnn.core.validation import quote
from spdnn.engines.model import Model, softmax

ACTIVATIONS = {"relu": RELU, "identity": IDENTITY}
NETWORKS = "neural_network", "MLPClassifier", "MLPRegressor"
SCALERS = "preprocessing", "StandardScaler", "MinMaxScaler"
TAKEN = "MLPClassifier and MLPRegressor are compiled, alone or in a Pipeline after StandardScaler or MinMaxScaler"
HALF = 0.5  # above which a label holds
DRAWN_INPUTS = 8  # that are compared


class Estimator(Protocol):
    """What every estimator of scikit-learn has."""

    def get_params(self, deep: bool = ...) -> Any: ...


class Scale(NamedTuple):
    """A part of what a scaler does: operation(x, operand) of each feature.

    Attributes:
        rounded: the operand becomes of the type of x first, as a StandardScaler has it.
    """

    operation: np.ufunc
    operand: Any
    rounded: bool = False


def network_of(estimator: Any) -> MemoryNetwork | None:
    """The layers of its last step, without scales and without what follows the last sum; None: it is no estimator.

    Raises:
        InputError: it is another estimator, not fitted, or has an activation that no network has.
    """
    _refuse_skorch(estimator)
    if not _is(estimator, "base", "BaseEstimator"):
        return None
    mlp = _steps(estimator)[-1]
    depth, name = len(mlp.coefs_), type(mlp).__name__
    if depth > 1 and mlp.activation not in ACTIVATIONS:
        raise InputError(f"the activation of this {name} is {mlp.activation!r}; a network has 'relu' and 'identity'")
    activations = [ACTIVATIONS.get(mlp.activation, IDENTITY)] * (depth - 1) + [IDENTITY]
    parts = zip(mlp.coefs_, mlp.intercepts_, activations, strict=True)
    return MemoryNetwork([Layer.from_matrix(*part, f"{name}: layer {k}") for k, part in enumerate(parts, 1)])


class EstimatorModel(WithRepr):
    """A fitted estimator of scikit-learn, ready for calls. `spdnn.compile` makes it, and compares its outputs with the
    estimator's own on drawn inputs.

    Args:
        model: of network_of(estimator).

    Attributes:
        inputs, outputs: the features, and the columns of the outputs.
        classes: those of a classifier, in the order of the outputs; None of a regressor.
        classes_, n_features_in_, feature_names_in_: as scikit-learn has them; without what the estimator was without.

    Raises:
        InputError: its outputs are not the estimator's.

    Example:
        >>> import numpy as np, spdnn
        >>> from sklearn.neural_network import MLPRegressor
        >>> x, y = np.eye(4), [1, 2, 3, 4]
        >>> regressor = MLPRegressor(hidden_layer_sizes=(8,), solver="lbfgs").fit(x, y)
        >>> model = spdnn.compile(regressor, threads=1)
        >>> np.allclose(model(x), regressor.predict(x), atol=1e-5)
        True
    """

    def __init__(self, model: Model, estimator: Any, verify: bool = True):
        *scalers, mlp = steps = _steps(estimator)
        self._model, self._end = model, mlp.out_activation_
        self._scales = [scale._replace(operand=np.array(scale.operand)) for step in scalers for scale in _scales(step)]
        self._names = list(getattr(steps[0], "feature_names_in_", []))
        self.classes = copy.deepcopy(getattr(mlp, "classes_", None))
        self._several = (
            self.classes is not None and self._end == "logistic" and mlp.n_outputs_ > 1
        )  # labels of an input
        self.inputs = model.inputs
        self.outputs = 2 if self.classes is not None and model.outputs == 1 else model.outputs
        if verify:
            self._check(estimator)

    @outside_graphs
    def __call__(self, x: Any) -> Any:
        """What `predict_proba` of a classifier gives, or `predict` of a regressor.

        Args:
            x: (inputs, features), as of spdnn.Model. Scalers come first, as in the Pipeline.

        Returns:
            float32 (inputs, classes), (inputs, outputs), or of a regressor with one output (inputs,); of the library
            of x and on its device.

        Raises:
            InputError: as spdnn.Model, or a frame with other columns than those that the estimator was fitted with.
            SpdnnError: a sum passed the range of float32.
        """
        arrays.refuse_gradient(x)
        self._check_names(x)
        if not sp.issparse(x):
            rows = arrays.host(x, "x")
        else:
            rows = check_sparse(x, "x is not a sound sparse matrix").toarray() if self._scales else x
        y = ENDS[self._end](self._model(self._scaled(rows)))
        if y.shape[1] == 1:
            y = y[:, 0] if self.classes is None else np.concatenate([1 - y, y], axis=1)
        return arrays.like(y, x)

    def predict(self, x: Any) -> Any:
        """What `predict` of the estimator gives.

        Args:
            x: as of a call.

        Returns:
            of a classifier its classes, (inputs,), or where an input has several labels zeros and ones (inputs,
            classes), of NumPy; of a regressor as a call.

        Raises:
            InputError, SpdnnError: as a call.
        """
        y = self(x)
        if self.classes is None:
            return y
        rows = arrays.host(y, "outputs")
        if self._several:
            return (rows > HALF).astype(int)
        if len(self.classes) > 2:
            return self.classes[rows.argmax(axis=1)]
        return self.classes[np.where(rows[:, 1] > HALF, len(self.classes) - 1, 0)]

    @property
    def predict_proba(self) -> Callable[[Any], Any]:
        """What a call of a classifier is; AttributeError of a regressor."""
        self._of_classifier("predict_proba")
        return self.__call__

    @property
    def classes_(self) -> Any:
        self._of_classifier("classes_")
        return self.classes

    @property
    def n_features_in_(self) -> int:
        return self.inputs

    @property
    def feature_names_in_(self) -> np.ndarray:
        if not self._names:
            raise AttributeError("the estimator was fitted without names of features: it has no feature_names_in_")
        return np.array(self._names, object)

    def close(self) -> None:
        """Let weights and buffers go. Closing again does nothing."""
        self._model.close()

    def __enter__(self) -> "EstimatorModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of_classifier(self, name: str) -> None:
        if self.classes is None:
            raise AttributeError(f"a regressor has no {name}")

    def _facts(self) -> dict[str, str]:
        return self._model._facts() | {"widths": f"{self.inputs} -> {self.outputs}", "end": self._end}

    def _scaled(self, rows: Any) -> Any:
        """In the type that scikit-learn takes: x - mean in float32 would lose digits of a large x in float64."""
        if not self._scales or rows.ndim != 2 or rows.shape[1] != self.inputs or rows.dtype.kind not in "fiub":
            return rows  # what does not fit, the model refuses
        rows = rows.astype(np.float32 if rows.dtype == np.float32 else np.float64)
        for operation, operand, rounded in self._scales:
            operation(rows, rows.dtype.type(operand) if rounded else operand, out=rows, casting="same_kind")
        return rows

    def _check_names(self, x: Any) -> None:
        """As scikit-learn: columns in another order would give other numbers."""
        names = (arrays.column_names(x) or []) if self._names else []
        if any(isinstance(name, str) for name in names):
            for name, fitted in zip(names, self._names, strict=False):
                if name != fitted:
                    raise InputError(f"x has a column {quote(name)} where the estimator was fitted with {fitted!r}")

    def _check(self, estimator: Any) -> None:
        x = np.random.default_rng(0).normal(size=(DRAWN_INPUTS, self.inputs))
        with warnings.catch_warnings(action="ignore"):  # of columns without names
            for scaler in reversed(_steps(estimator)[:-1]):
                x = scaler.inverse_transform(x)
            expected = (estimator.predict if self.classes is None else estimator.predict_proba)(x)
        actual = self(x)
        allowed = LAYERS_TOLERANCE * max(1, abs(expected).max())
        if disagreement(actual, expected, allowed):
            raise InputError(
                f"compiled, this {type(estimator).__name__} gives other numbers than its own predict does: float32 is "
                "not enough for its weights, or a class of yours predicts in another way"
            )


def _is(value: Any, module: str, *names: str) -> bool:
    """Whether it is of one of these classes of a module of scikit-learn, or of a class that is made of one."""
    classes = tuple(getattr(sys.modules.get(f"sklearn.{module}"), name, ()) for name in names)
    return isinstance(value, classes)


def _refuse_skorch(estimator: Any) -> None:
    """Raise InputError for a net of skorch, which holds the torch.nn.Module that is compiled."""
    if any(kind.__module__.split(".")[0] == "skorch" for kind in type(estimator).__mro__):
        first = "" if hasattr(estimator, "module_") else "call its fit(), and then "
        raise InputError(
            f"a {type(estimator).__name__} of skorch: {first}spdnn.compile(net.module_) compiles its module, without "
            "the softmax that predict_proba adds"
        )


def _parts(estimator: Any) -> list[Any]:
    """The estimators of a Pipeline, of Pipelines in it too."""
    if _is(estimator, "pipeline", "Pipeline"):
        return [part for _, step in estimator.steps for part in _parts(step)]
    return [] if estimator is None or isinstance(estimator, str) else [estimator]  # a step "passthrough"


def _steps(estimator: Any) -> list[Any]:
    """Scalers, and what is compiled last. Raises InputError."""
    steps = _parts(estimator)
    for k, step in enumerate(steps or [estimator]):
        last = k == len(steps) - 1
        _refuse_skorch(step)
        if not _is(step, *(NETWORKS if last else SCALERS)):
            raise InputError(f"{type(step).__name__} of scikit-learn: {TAKEN}")
        if not hasattr(step, "coefs_" if last else "scale_"):
            raise InputError(f"this {type(step).__name__} is not fitted; call fit() first")
    return steps


ENDS = {  # logistic: by tanh, which no sum overflows
    "identity": lambda y: y,
    "softmax": softmax,
    "logistic": lambda y: 0.5 + 0.5 * np.tanh(0.5 * y),
    "exp": np.exp,
}


def _scales(scaler: Any) -> list[Scale]:
    if _is(scaler, "preprocessing", "StandardScaler"):
        means = [Scale(np.subtract, scaler.mean_, True)] if scaler.with_mean else []
        return means + ([Scale(np.divide, scaler.scale_, True)] if scaler.with_std else [])
    low, high = scaler.feature_range
    clips = [Scale(np.maximum, low), Scale(np.minimum, high)] if scaler.clip else []
    return [Scale(np.multiply, scaler.scale_), Scale(np.add, scaler.min_), *clips]
