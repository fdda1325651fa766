"""Cells of the documentation's tables agree with the records, by code that shares nothing with what made them.

SPDNN_CELLS_SEED, numbers with spaces between: more seeds that cells are drawn by.
"""

import ast
import os
import random
import re
import sys
from pathlib import Path

import pytest
import recomputed
from recomputed import Cell, Table, agrees, compare, drawn, read_pages
from recomputed_tables import Value

SEEDS = [20261128, *map(int, os.environ.get("SPDNN_CELLS_SEED", "").split())]


@pytest.mark.parametrize("seed", SEEDS)
def test_cells_drawn_from_all_tables_agree_with_the_records(seed):
    cells, wrong = compare(read_pages())
    assert wrong == []
    assert [str(cell) for cell in drawn(cells, seed, 20) if not agrees(cell)] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_digit_is_found_in_every_table(seed):
    pages, generator = read_pages(), random.Random(seed)
    tables = {(cell.table.page, cell.table.lines[0]): cell.table for cell in compare(pages)[0]}
    assert len(tables) > 20
    for table in tables.values():
        digits = [
            (i, j, k)
            for i, row in enumerate(table.rows)
            for j, text in enumerate(row)
            for k, letter in enumerate(text)
            if letter.isdigit()
        ]
        i, j, k = generator.choice(digits)
        text, lines = table.rows[i][j], pages[table.page].split("\n")
        other = generator.choice("0123456789".replace(text[k], ""))
        cells = lines[table.lines[i]].split("|")
        cells[j + 1] = f" {text[:k]}{other}{text[k + 1 :]} "
        lines[table.lines[i]] = "|".join(cells)
        changed, wrong = compare({table.page: "\n".join(lines)})
        differing = [
            (cell.row, cell.column) for cell in changed if cell.table.lines == table.lines and not agrees(cell)
        ]
        assert (differing, wrong) == ([(i, j)], []), (table.name, text, cells[j + 1])


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("9.35 ms", True),
        ("9.3 ms †", True),
        ("9.36 ms", False),
        ("9.35 s", False),
        ("0.01 s", False),
        ("9.35 ms (n = 3)", True),
        ("9.35 ms (n = 4)", False),
        ("9.35 ms † (n=3; 9.12 to 9.88 ms)", True),
        ("9.35 ms (n = 3, 9.12 to 9.98 ms)", False),
        ("9.35 ms (of two)", False),
        ("", False),
    ],
)
def test_a_number_is_read_with_its_unit_and_what_brackets_say_of_it(text, right):
    value = Value(0.009347, (3,), lambda: (0.009123, 0.009876))
    assert agrees(Cell(Table("page", "name", ["inference"], [[text]], [0]), 0, 0, [value])) == right


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<!-- measured: calls -->", "<!-- measured: unheard_of -->"),
        (r"\| inputs of a call \| ours \|", "| inputs of a call | theirs |"),
        (r"\| 512 \| .*\n", ""),
    ],
)
def test_tables_without_a_function_and_other_heads_or_rows_are_refused(old, new):
    text = read_pages()["README.md"]
    changed, count = re.subn(old, new, text)
    assert count == 1
    assert len(compare({"README.md": changed})[1]) == 1


def test_the_script_ends_with_1_where_a_cell_differs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["recomputed.py", "--all"])
    assert recomputed.main() == 0
    pages = read_pages()
    printed = re.search(r"\| 1 \| ([\d.]+) µs \|", pages["README.md"])[1]
    other = f"{float(printed) + 1:.1f}"
    pages["README.md"] = pages["README.md"].replace(f"| {printed} µs |", f"| {other} µs |")
    monkeypatch.setattr(recomputed, "read_pages", lambda: pages)
    assert recomputed.main() == 1
    assert f"printed '{other} µs', recomputed '" in capsys.readouterr().out


def test_the_recomputation_imports_neither_what_makes_the_tables_nor_the_report():
    found = set()
    for name in ("recomputed.py", "recomputed_tables.py"):
        for node in ast.walk(ast.parse(Path(recomputed.__file__).with_name(name).read_text())):
            found |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            found |= {node.module} if isinstance(node, ast.ImportFrom) else set()
    own = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    predictions = {"spdnn.runs.calibration", "spdnn.runs.records.files"}  # for `plans`: no record has them
    assert own == {"numpy", "recomputed_tables"} | predictions
