"""How often a classifier's outputs agree with labels: a part of a run record."""

from collections.abc import Iterator

from spdnn.core.fields import Claim, Count, Digest, Record

MOST_CLASSES = 100  # of a confusion matrix in a record


class Accuracy(Record):
    """How often the outputs of a run agree with labels.

    Attributes:
        labels_sha256: digest of the labels, int64.
        top1: inputs whose largest output is that of the label.
        confusion: inputs by label (row) and largest output (column); null: more than 100 classes.
    """

    labels_sha256: Digest
    top1: Count
    confusion: list[list[Count]] | None

    def claims(self, inputs: int) -> Iterator[Claim]:
        """Its counts agree with one another and with the number of inputs."""
        yield self.top1 <= inputs, f"accuracy.top1: {self.top1} of {inputs} inputs"
        if self.confusion is None:
            return
        size = len(self.confusion)
        square = all(len(row) == size for row in self.confusion)
        yield square, f"accuracy.confusion: {size} rows, and not as many columns"
        total = sum(map(sum, self.confusion))
        right = sum(row[k] for k, row in enumerate(self.confusion)) if square else 0
        yield total == inputs, f"accuracy.confusion: {total} inputs of {inputs}"
        yield right == self.top1, f"accuracy.confusion: {right} right answers, and top-1 is {self.top1}"
