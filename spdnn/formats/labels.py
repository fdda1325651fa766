"""Labels of inputs, and names of classes: arrays as NumPy stores them, or text with one a line."""

from pathlib import Path

import numpy as np

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.validation import quote
from spdnn.formats import lines
from spdnn.formats.tensors import NpzArchive, read_array

TEXT = (".csv", ".txt")
LONGEST_LABEL = 100  # characters of a name
INEXACT = 1 << 53  # from which on a float64 is not every whole number


@safe_open.releasing()
def read_labels(path) -> np.ndarray:
    """The labels in a file: an array of .npy, the only one of .npz, or of .csv and .txt a whole number a line (4, 4.0).

    The first line of a .csv may be a heading. Whether they are in range is for `verify.classes` to say.

    Raises:
        InputError: one sentence with the file, and the line where there are lines.
    """
    path = safe_open.existing(path, "file of labels")
    if path.name.endswith(TEXT):
        return _text(path)
    if path.suffix == ".npy":
        return read_array(path)
    if path.suffix == ".npz":
        archive = NpzArchive(path)
        return archive.any(archive.only("labels are one array: save it alone"))
    raise InputError(f"{path}: labels are .npy, .npz, .csv or .txt files")


def read_names(path, classes: int) -> list[str]:
    """The names of so many classes, one a line, in their order.

    Raises:
        InputError: another number of them, one that is empty, too long, not printable or there twice.
    """
    path = safe_open.existing(path, "list of class names")
    names = [text for _, text in safe_open.lines(path)]
    for number, name in enumerate(names, 1):
        if not 1 <= len(name) <= LONGEST_LABEL or not name.isprintable():
            raise InputError(f"{path}:{number}: {quote(name)} is no name of a class: 1 to {LONGEST_LABEL} characters")
        if (first := names.index(name) + 1) < number:
            raise InputError(f"{path}:{number}: class {quote(name)} is there twice, first in line {first}")
    if len(names) != classes:
        raise InputError(f"{path}: {len(names)} names; the network has {classes} outputs, each a class")
    return names


def _text(path: Path) -> np.ndarray:
    labels = []
    for number, text in safe_open.lines(path):
        if lines.INTEGER.fullmatch(text):
            labels.append(int(text))
        elif lines.NUMBER.fullmatch(text) and (value := float(text)).is_integer() and abs(value) < INEXACT:
            labels.append(int(value))
        elif text and not lines.is_heading(path, number, text):
            index = "; a line has one label, and no index" if "," in text else ""
            raise InputError(f"{path}:{number}: {quote(text)} is not a label; one is a whole number{index}")
    return np.array(labels, dtype=np.int64)
