"""The table of published results of sparse operations: what ships is sound, and what is broken says so."""

import pytest

from spdnn.core.errors import InputError
from spdnn.runs.records.published_operations import COLUMNS, QUANTITIES, read_operation_baselines

HEAD = ",".join(COLUMNS) + "\n"
ROW = "spmm,,speed-up,2.5,2.5x,A GPU,a library,A paper\n"


def test_the_table_that_ships():
    rows = read_operation_baselines()
    assert {row.quantity for row in rows} == set(QUANTITIES)
    assert all("arXiv:2006.10901" in row.source for row in rows)
    speedups = {row.network: row.value for row in rows if row.quantity == "speed-up"}
    assert speedups["transformer"] == round(67_857 / 32_477, 2)
    assert speedups["mobilenet"] == round(2_095 / 1_729, 2)
    (memory,) = (row for row in rows if row.quantity == "memory ratio")
    assert memory.value == round(9.88 / 0.77, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: the columns must be operation,"),
        (HEAD + "spmm\n", "line 2: 1 cells, not 8"),
        (HEAD + ROW.replace("A paper", " "), "line 2: source is empty"),
        (HEAD + ROW.replace("speed-up", "speed"), "quantity 'speed' must be one of: speed-up;"),
        (HEAD + ROW.replace("2.5,", "0,", 1), "value '0' must be a positive number"),
        (HEAD + ROW.replace("2.5,", "nan,", 1), "value 'nan' must be a positive number"),
    ],
)
def test_a_broken_table_is_one_sentence(tmp_path, text, sentence):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as error:
        read_operation_baselines(tmp_path / "t.csv")
    assert sentence in str(error.value)
    (tmp_path / "t.csv").write_text(HEAD + ROW)
    assert read_operation_baselines(tmp_path / "t.csv")[0].value == 2.5
