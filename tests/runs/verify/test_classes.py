"""Labels and references: counts as scikit-learn has them, and what is refused."""

import numpy as np
import pytest
from refusals import refuses
from sklearn.metrics import accuracy_score, confusion_matrix, top_k_accuracy_score

import spdnn


def outputs_and_labels(seed=0, inputs=700, classes=12):
    """Outputs of which a good part is right, many are equal, and some rows are zero."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, inputs)
    outputs = (rng.integers(-20, 20, (inputs, classes)) / 8).astype(np.float32)
    outputs[np.arange(inputs), labels] += 1
    outputs[rng.random(inputs) < 0.1] = 0
    return outputs, labels


@pytest.mark.parametrize("inputs", [700, 100_000])  # of one block of rows and of two
def test_the_counts_are_those_of_scikit_learn(inputs):
    outputs, labels = outputs_and_labels(inputs=inputs)
    scores = spdnn.score(outputs, labels)
    # scikit-learn leaves open which of equal outputs comes first: here the lower one.
    apart = outputs.astype(np.float64) - 1e-6 * np.arange(12)
    numbers = range(12)
    assert scores.top1 == accuracy_score(labels, apart.argmax(axis=1))
    assert scores.top5 == top_k_accuracy_score(labels, apart, k=5, labels=numbers)
    assert scores.hits(3) == top_k_accuracy_score(labels, apart, k=3, labels=numbers, normalize=False)
    np.testing.assert_array_equal(scores.confusion, confusion_matrix(labels, apart.argmax(axis=1), labels=numbers))
    assert repr(scores).startswith(f"Scores({inputs:,} inputs, 12 classes, top-1 ")


def test_words_in_the_singular():
    assert repr(spdnn.score(np.ones((1, 1)), [0])).startswith("Scores(1 input, 1 class, top-1 ")


def test_a_result_is_scored_as_its_values_are_dead_inputs_too():
    rng = np.random.default_rng(1)
    network = spdnn.from_matrices([rng.normal(size=(30, 8))], -2.0, last="relu")
    x, labels = rng.random((90, 30)), rng.integers(0, 8, 90)
    result = spdnn.infer(network, x)
    refuses(r"not kept: run model\.infer\(x, values=True\), or spdnn\.infer", spdnn.score, result, labels)
    with spdnn.compile(network) as model:
        result = model.infer(x, values=True)
    assert 0 < result.alive.size < 90
    whole = spdnn.score(result.all_values(), labels)
    np.testing.assert_array_equal(spdnn.score(result, labels).ranks, whole.ranks)
    assert spdnn.agreement(result, result.all_values(), 0).passed


def test_another_class_is_allowed_where_the_two_largest_of_the_reference_are_close():
    reference = np.array([[1.0, 0.0, 0.0], [1.0, 1.0 - 1e-6, 0.0], [4.0, 0.0, 0.0]])
    outputs = reference.copy()
    outputs[1] = reference[1, [1, 0, 2]]
    one = spdnn.agreement(outputs, reference, 1e-5)
    assert (one.passed, one.same, one.close, one.first) == (True, 2, 1, None)
    assert one.worst == pytest.approx(1e-6 / 4)
    one = spdnn.agreement(outputs, reference, 1e-7)
    assert (one.passed, one.same, one.close, one.first) == (False, 2, 0, 1)
    far = spdnn.agreement(reference + 1e-3, reference)
    assert (far.passed, far.same, far.first) == (False, 3, None)
    assert not far
    assert spdnn.agreement(reference, reference)
    assert repr(far) == (
        "Agreement(passed=False, the largest difference is 0.00025 times the largest value of the reference "
        "(1e-05 allowed), same class for 3 of 3 inputs)"
    )
    assert not spdnn.agreement(np.ones((2, 2)), np.zeros((2, 2))).passed
    assert spdnn.agreement(np.zeros((2, 1)), np.zeros((2, 1)), 0).passed


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.zeros(699, int), "699 labels for 700 inputs"),
        (np.zeros((700, 2), int), r"of shape \(700, 2\); one whole number for each input"),
        (np.r_[np.zeros(699, int), 12], r"label 12 of input 699 \(counted from 0\) is out of range; 12 classes are 0"),
        (np.r_[-1, np.zeros(699, int)], r"label -1 of input 0"),
        (np.r_[np.ones(699, int), 12], r"12 classes are 0 to 11; are they counted from 1\?$"),
        (np.r_[np.zeros(699, int), 12], r"12 classes are 0 to 11$"),
        (np.full(700, 0.5), "of float64; labels are whole numbers, from 0 to 11"),
        (np.full(700, np.nan), "labels are whole numbers"),
        (np.full(700, "a"), "labels are whole numbers"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, sentence):
    refuses(sentence, spdnn.score, outputs_and_labels()[0], labels)


def test_outputs_and_references_that_do_not_fit_are_refused():
    outputs, labels = outputs_and_labels()
    for wrong in (outputs[0], np.where(outputs == 0, np.nan, outputs), outputs.astype(complex)):
        refuses("the outputs: ", spdnn.score, wrong, labels)
    said = r"the reference has shape \(700, 11\); the outputs have \(700, 12\)"
    refuses(said, spdnn.agreement, outputs, outputs[:, 1:])
    for tolerance in (-1, np.inf, "1e-5", True):
        refuses("a number from 0", spdnn.agreement, outputs, outputs, tolerance)
    scores = spdnn.score(np.eye(3, 20000), [0, 1, 2])
    refuses("20000 classes; a confusion matrix has at most 10,000", lambda: scores.confusion)
