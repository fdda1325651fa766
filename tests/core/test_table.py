"""Tables: what a cell says in CSV, on a terminal and in Markdown, whatever its texts hold."""

import csv
import io
import re
from typing import NamedTuple

import pytest

from spdnn.core import table
from spdnn.core.table import NUMBER, RATE, SECONDS, Column, Number, Styled, Table, bad, between, columns_of, good, plain

HOSTILE = "\x1b[2J\x1b]0;title\x07 a \u202e\u200bname \r\n\x9b31m with 漢字漢字漢字 e\u0301 | in <b>it" + "x" * 100


class Row(NamedTuple):
    name: str
    rate: float | None = None
    seconds: float | None = None
    ends: tuple[float, float] | None = None


TABLE = Table(
    "Rows",
    [
        Column("Name", lambda row: row.name),
        Column("Rate", lambda row: row.rate, RATE),
        Column("Time", lambda row: row.seconds, SECONDS, below=lambda row: row.ends and between(*row.ends, SECONDS)),
        Column("Verdict", lambda row: good("fast") if row.rate and row.rate > 1e12 else bad("slow")),
        Column("Never", lambda row: None, NUMBER),
    ],
)
ROWS = [Row("first", 2.5e12, 0.125, (0.1, 0.15)), Row("second", 5e9), Row("third")]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.12345, NUMBER, "0.1235"), (1812, NUMBER, "1,812"), (2 / 3, table.RATIO, "0.667"),
     (0.125, table.PERCENT, "12.5 %"), (0.5, SECONDS, "0.5000"), (2.5e12, RATE, "2.500"),
     (15e9, table.BILLIONS, "15.00"), (3 << 30, table.BYTES, "3.0 GiB"), (0.002, table.DURATION, "2.00 ms")],
)  # fmt: skip
def test_units_write_numbers(value, unit, text):
    assert plain(Number(value, unit)) == text
    assert plain(Number(value, unit, "as printed")) == "as printed"


def test_rates_of_a_table_are_in_one_unit_the_largest_that_they_reach():
    _, (heads, *lines) = TABLE.texts(ROWS)
    assert heads == ["Name", "Rate, TeraEdges/s", "Time, seconds", "Verdict"]
    assert lines[0] == ["first", "2.500", "0.1250 (0.1000 to 0.1500)", "fast"]
    assert lines[1:] == [["second", "0.005000", "–", "slow"], ["third", "–", "–", "slow"]]
    assert TABLE.texts(ROWS[1:])[1][:2] == [["Name", "Rate, GigaEdges/s", "Verdict"], ["second", "5.000", "slow"]]
    styled = Table("", [Column("Rate", lambda row: Styled(Number(row, RATE), title="whose"), RATE)])
    assert styled.texts([5e9])[1] == [["Rate, GigaEdges/s"], ["5.000"]]


def test_columns_without_a_value_are_left_out_but_of_csv():
    assert [column.name for column in TABLE.filled(ROWS[2:])[0]] == ["Name", "Verdict"]
    assert [column.name for column in TABLE.filled([])[0]] == ["Name"]
    assert TABLE.csv([]) == "name,rate_edges_per_second,time_seconds,time_seconds_below,verdict,never\n"


def test_csv_has_raw_numbers_and_no_formula():
    styled = Column("Best", lambda row: Styled(Number(row.rate, RATE, "2.5"), title="whose"), RATE, csv="published")
    more = Table("Rows", [*TABLE.columns, styled])
    names = ['=HYPERLINK("http://evil.example")', "+cmd|' /C calc'!A0", "-1", "@x", "a,b"]
    rows = list(csv.DictReader(io.StringIO(more.csv([Row(name, 2.5e12, 1 / 3, (0.25, 0.4)) for name in names]))))
    assert [row["name"] for row in rows] == [*(f"'{name}" for name in names[:4]), "a,b"]
    assert {(row["rate_edges_per_second"], row["time_seconds"]) for row in rows} == {("2500000000000.0", repr(1 / 3))}
    assert {(row["published"], row["verdict"], row["never"]) for row in rows} == {("2500000000000.0", "fast", "")}
    assert [row["time_seconds_below"] for row in rows] == ["0.2500 to 0.4000"] * 5
    assert list(csv.reader(io.StringIO(more.csv([Row(HOSTILE)]))))[1][0].isprintable()


def test_a_terminal_has_a_line_a_row_numbers_on_the_right():
    assert TABLE.text(ROWS).splitlines() == [
        "Name    Rate, TeraEdges/s              Time, seconds  Verdict",
        "first               2.500  0.1250 (0.1000 to 0.1500)  fast",
        "second           0.005000                          –  slow",
        "third                   –                          –  slow",
    ]
    colours = TABLE.text(ROWS, colours=True)
    assert [len(re.findall(rf"\x1b\[{code}m", colours)) for code in (32, 31, 0)] == [1, 2, 3]
    assert re.sub(r"\x1b\[\d+m", "", colours) == TABLE.text(ROWS)


@pytest.mark.parametrize("width", [200, 90, 74])
def test_lines_fit_the_terminal(width):
    rows = [Row(HOSTILE, 2.5e12, 0.125, (0.1, 0.15)), Row("漢字" * 40, 5e9), Row("short")]
    text = TABLE.text(rows, width).splitlines()
    assert max(map(columns_of, text)) <= width
    assert all(line.isprintable() for line in text)
    starts = [re.split("Verdict|fast|slow", line) for line in text]
    assert len({columns_of(parts[0]) for parts in starts if parts[1:]}) == 1
    assert ["".join(text).count(sign) for sign in "x漢"] == [100, 43]  # nothing is cut off
    assert len(TABLE.text(rows).splitlines()) == 4  # a pipe gets a line a row


@pytest.mark.parametrize(("text", "room", "lines"), [
    ("short", 5, ["short"]), ("two words", 8, ["two", "words"]), ("a-long-name", 6, ["a-long", "-name"]),
    ("漢字漢字", 5, ["漢字", "漢字"]), ("a e\u0301e\u0301", 2, ["a", "e\u0301e\u0301"]), ("", 5, [""]),
])  # fmt: skip
def test_long_texts_have_several_lines(text, room, lines):
    assert table.wrapped(text, room) == lines


def test_a_colour_ends_with_its_line():
    why = Table("", [Column("Why", lambda row: bad("seven categories are missing")), Column("Rest", lambda row: "x")])
    lines = why.text([0], 22, colours=True).splitlines()[1:]
    assert len(lines) > 1
    assert all(re.fullmatch(r"\x1b\[31m[a-z ]+\x1b\[0m *x?", line) for line in lines), lines
    assert why.text([0], 22).splitlines()[1:] == [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


def test_columns_are_those_of_a_terminal():
    assert [columns_of(text) for text in ("abc", "漢字", "e\u0301", "\x1b[32mgood\x1b[0m")] == [3, 4, 1, 4]


def test_markdown_has_one_line_a_row_and_no_markup_of_theirs():
    head, rule, first, hostile = TABLE.markdown([ROWS[0], Row(HOSTILE)]).splitlines()
    assert head == "| Name | Rate, TeraEdges/s | Time, seconds | Verdict |"
    assert rule == "| --- | ---: | ---: | --- |"
    assert first == "| first | 2.500 | 0.1250 (0.1000 to 0.1500) | fast |"
    assert "\\| in &lt;b>it" in hostile
    assert hostile.isprintable()
    assert len(re.findall(r"(?<!\\)\|", hostile)) == 5
