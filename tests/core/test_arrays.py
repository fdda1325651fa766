"""Frames as arrays: every column a number without gaps, or the first that is not is named."""

import numpy as np
import pandas as pd
import pytest
from refusals import refuses

import spdnn
from spdnn.core import arrays


class Polars:
    """What is asked of a polars.DataFrame, which makes numbers of dates where all of it becomes an array."""

    def __init__(self, columns):
        self._columns = [pd.Series(values) for values in columns.values()]
        self.columns = list(columns)

    def iter_columns(self):
        return iter(self._columns)

    def to_series(self, k):
        return self._columns[k]

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(column).astype(float) for column in self._columns], axis=1)


class Arrow:
    """What is asked of a pyarrow.Table."""

    def __init__(self, columns):
        self.columns = [pd.Series(values) for values in columns.values()]
        self.column_names = list(columns)

    def column(self, k):
        return self.columns[k]


def nullable(columns):
    return pd.DataFrame(columns).convert_dtypes()


FRAMES = {"pandas": pd.DataFrame, "nullable": nullable, "polars": Polars, "arrow": Arrow}
COLUMNS = {"age": [3, 5], "weight": [0.5, 2.5], "alive": [True, False]}
BROKEN = {  # a column, and what it holds
    "gap": ("weight", [0.5, None]),
    "gap in whole numbers": ("age", [3, None]),
    "gap in bools": ("alive", [None, True]),
    "text": ("weight", ["0.5", "2.5"]),
    "dates": ("age", pd.to_datetime(["2020-01-01", "2021-01-01"])),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_of_numbers_is_their_matrix(make):
    frame, expected = make(COLUMNS), [[3, 0.5, 1], [5, 2.5, 0]]
    assert arrays.host(frame, "x").tolist() == expected
    assert spdnn.Inputs.from_array(frame).dense([0, 1]).tolist() == expected
    with spdnn.compile(spdnn.from_matrices([np.eye(3)], last="none"), threads=1) as model:
        assert model(frame).tolist() == expected
    assert arrays.host(make({"a": [2**62 + 1], "b": [1]}), "x").tolist() == [[2**62 + 1, 1]]


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("broken", BROKEN)
def test_the_first_column_that_is_no_number_is_named(make, broken):
    name, values = BROKEN[broken]
    frame = make(COLUMNS | {name: values} | {"last": [None, "x"]})
    refuses(f"^x has a column '{name}' .* that holds a gap or what is no number$", arrays.host, frame, "x")
    refuses(f"^the array of inputs has a column '{name}' ", spdnn.Inputs.from_array, frame)
    with spdnn.compile(spdnn.from_matrices([np.eye(4)], last="none"), threads=1) as model:
        refuses(f"^x has a column '{name}' ", model, frame)


def test_columns_of_one_name_are_each_taken():
    frame = pd.DataFrame([[1, True], [2, False]], columns=["a", "a"])
    assert arrays.host(frame, "x").tolist() == [[1, 1], [2, 0]]
    refuses("'a'", arrays.host, pd.DataFrame([[1, "b"]], columns=["a", "a"]), "x")
