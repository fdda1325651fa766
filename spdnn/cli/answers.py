"""What `spdnn infer` says of the classes: labels that outputs hit, and how near they are to a reference."""

import hashlib
import json

import numpy as np

from spdnn.cli import arguments
from spdnn.cli.terminal import show
from spdnn.core.closeness import LAYERS_TOLERANCE
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.files import write_text
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.core.table import NUMBER, Column, Table
from spdnn.runs.records.result import MOST_RECORDED, Accuracy
from spdnn.runs.verify import classes
from spdnn.runs.verify.classes import Agreement, Scores

SHOWN_CLASSES = 16  # classes of which the whole confusion matrix is printed
MIXED = 10  # of more classes: the pairs that are taken for each other most often
MISTAKES = Table(
    "Mistakes",
    [
        Column("label", lambda row: row[0]),
        Column("taken for", lambda row: row[1]),
        Column("inputs", lambda row: row[2], NUMBER),
    ],
)


def add(command) -> None:
    """--labels, --classes, --reference, --tolerance and --json."""
    group = command.add_argument_group("classes (one output each; the predicted class has the largest)")
    group.add_argument(
        "--labels",
        metavar="y.npy",
        help="print top-1, top-5 and the confusion matrix for these labels, counted from 0: .npy, .npz, or .csv and "
        ".txt with one per line",
    )
    group.add_argument("--classes", metavar="names.txt", help="names of the classes, one per line")
    group.add_argument(
        "--reference",
        metavar="out.npy",
        help="compare with the outputs of another program (inputs, outputs): .npy, .npz, .mtx or .csv; classes must "
        "agree unless the two largest outputs of the reference are closer than the tolerance",
    )
    group.add_argument(
        "--tolerance",
        type=lambda text: arguments.number(text, float, lambda n: 0 <= n < np.inf, "a number from 0, such as 1e-5"),
        metavar="T",
        help=f"largest difference from the reference, relative to its largest output (default: {LAYERS_TOLERANCE:g})",
    )
    group.add_argument("--json", metavar="answers.json", help="also write the result as JSON")


class Answers:
    """What was asked of the classes, and what the outputs say. Raises InputError for options that need others."""

    def __init__(self, args):
        from spdnn.formats.labels import read_labels
        from spdnn.formats.matrices import read_matrix

        if args.classes and not args.labels:
            raise InputError("--classes names the classes of --labels; give --labels y.npy too")
        if args.tolerance is not None and not args.reference:
            raise InputError("--tolerance is for --reference; give --reference out.npy too")
        self._chosen, self._names = args, None
        self._tolerance = LAYERS_TOLERANCE if args.tolerance is None else args.tolerance
        self._labels = read_labels(args.labels) if args.labels else None
        matrix = read_matrix(args.reference) if args.reference else None
        self._reference = matrix if matrix is None or isinstance(matrix, np.ndarray) else matrix.toarray()
        self.scores: Scores | None = None
        self.agreement: Agreement | None = None

    @property
    def needed(self) -> bool:
        """Whether all outputs are."""
        return self._labels is not None or self._reference is not None

    def check(self, network: Network, inputs: Inputs) -> None:
        """Refuse labels, names and a reference that are not of this network and these inputs, before anything runs."""
        from spdnn.formats.labels import read_names

        args, most = self._chosen, inputs.count
        if self._labels is not None:
            if args.count:
                self._labels = self._labels[:most]
            self._labels = classes.check_labels(self._labels, most, network.outputs, args.labels)
            if args.classes:
                self._names = read_names(args.classes, network.outputs)
        self._last = network.header(network.depth - 1).activation
        if self._reference is not None:
            if self._reference.ndim != 2:
                expected, shape = (most, network.outputs), self._reference.shape
                hint = "; class labels go to --labels" if self._reference.dtype.kind in "iu" else ""
                raise InputError(f"{args.reference}: it must be outputs {expected}, not {shape}{hint}")
            reference = classes.check_reference(self._reference, args.reference)
            self._reference = reference[:most] if args.count else reference
            if self._reference.shape != (most, network.outputs):
                raise InputError(
                    f"{args.reference}: outputs {reference.shape}; {most} inputs have {(most, network.outputs)}"
                )

    def accuracy(self, result: Result) -> Accuracy | None:
        """What a record says of the labels; None where none were given."""
        if self._labels is None:
            return None
        scores = self.scores = classes.score(result, self._labels)
        digest = hashlib.sha256(np.ascontiguousarray(self._labels)).hexdigest()
        confusion = scores.confusion.tolist() if scores.classes <= MOST_RECORDED else None
        return Accuracy(digest, scores.hits(1), confusion)

    def judge(self, result: Result) -> str | None:
        """Print all that was asked; the sentence of a reference that differs, or None."""
        if self._labels is not None:
            self.scores = self.scores or classes.score(result, self._labels)
            _print_scores(self.scores, self._names)
        if self._reference is not None:
            two = self.agreement = classes.agreement(result, self._reference, self._tolerance)
            alike = f"the same class for {two.same} of {two.inputs} inputs{f', {two.close} close' if two.close else ''}"
            print(f"reference   {'equal' if two.passed else 'DIFFERENT'}: {two.said}; {alike}")
        if self._chosen.json:
            write_text(self._chosen.json, json.dumps(self._content(result), ensure_ascii=False) + "\n")
        if self.agreement is None or self.agreement.passed:
            return None
        ours, theirs = classes.are_probabilities(result), classes.are_probabilities(self._reference)
        if ours != theirs:
            return f"{_different(self.agreement)}; {_softmax('ours are' if ours else 'the reference is', theirs)}"
        below = self._last.low == 0 and (self._reference < 0).any()
        hint = "; the last layer has ReLU here, and the reference has negative outputs (--last none?)" if below else ""
        return _different(self.agreement) + hint

    def _content(self, result: Result) -> dict:
        content: dict = {"inputs": result.inputs, "survivors": int(result.categories.size)}
        if scores := self.scores:
            content["classes"] = {
                "outputs": scores.classes,
                "names": self._names,
                "top1": scores.top1,
                "top1_hits": scores.hits(1),
                "top5": scores.top5,
                "top5_hits": scores.hits(5),
                "confusion": scores.confusion.tolist() if scores.classes <= classes.MOST_CLASSES else None,
            }
        if (two := self.agreement) is not None:
            content["reference"] = {
                "passed": two.passed,
                "worst": two.worst if np.isfinite(two.worst) else None,
                "tolerance": two.tolerance,
                "same_class": two.same,
                "close": two.close,
                "first_different": two.first,
            }
        return content


def _print_scores(scores: Scores, names: list[str] | None) -> None:
    tops = [(k, scores.hits(k)) for k in (1, 5) if k < max(2, scores.classes)]
    text = ", ".join(f"top-{k} {100 * hits / scores.inputs:.2f} % ({hits} of {scores.inputs})" for k, hits in tops)
    print(f"classes     {scores.classes}: {text}")
    if scores.classes > classes.MOST_CLASSES:
        return
    words = names or [str(number) for number in range(scores.classes)]
    confusion = scores.confusion
    if scores.classes <= SHOWN_CLASSES:
        counts = [Column(word, lambda row, k=k: int(confusion[row, k]), NUMBER) for k, word in enumerate(words)]
        print("confusion   inputs by label (row) and predicted class (column)")
        show(Table("Confusion", [Column("label", lambda row: words[row]), *counts]), range(scores.classes))
        return
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MIXED]
    print(f"confusion   most often, of {int(wrong.sum())} wrong predictions (--json has the whole matrix)")
    pairs = [(words[at // len(words)], words[at % len(words)], int(wrong.flat[at])) for at in order if wrong.flat[at]]
    show(MISTAKES, pairs)


def _softmax(probabilities: str, theirs: bool) -> str:
    """What to do where one side has probabilities, and the other the logits that they are made of."""
    other = "ours are logits" if theirs else "the reference has logits"
    return (
        f"{probabilities} after a softmax (no value is below 0, rows sum to 1), and {other}: export the outputs of the "
        "layer before the softmax (`--last none` leaves it out of an ONNX model)"
    )


def _different(agreement: Agreement) -> str:
    if agreement.worst > agreement.tolerance:
        return f"the outputs differ from the reference: {agreement.said}"
    return f"input {agreement.first} (counted from 0) is of another class than in the reference"
