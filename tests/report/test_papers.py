"""For papers: one figure as PDF, SVG or PNG; all records as a table; records as a frame."""

import contextlib
import csv
import re

import pytest
from records import made_record, stored
from refusals import refuses

import spdnn
from spdnn.cli import main


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder results/ with two records, where the command runs."""
    (tmp_path / "results").mkdir()
    busy = made_record("busy", (0.3,))
    busy["load"] = {"others": 0.25, "throttled": None}
    stored(tmp_path / "results", made_record("quiet"), busy)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_a_figure_is_as_wide_as_asked(results, tmp_path, capsys):
    for name in ("fig.pdf", "again.pdf"):
        assert main(["report", "--figure", "overview", "-o", name, "--width", "84mm"]) == 0
    whole = (tmp_path / "fig.pdf").read_bytes()
    assert whole.startswith(b"%PDF")
    box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ", whole)
    assert float(box[1]) == pytest.approx(84 / 25.4 * 72, abs=0.1)
    assert (tmp_path / "again.pdf").read_bytes() == whole
    assert main(["report", "--figure", "times-whole", "-o", "fig.svg", "--style", "page"]) == 0
    assert 'width="237.6pt"' in (tmp_path / "fig.svg").read_text("utf-8")
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing", "-o", "fig.pdf"], "figure 'nothing' is not known: it must be one of overview, "),
        (["overview"], "report.html: the name of a figure ends in .pdf, .svg, .png"),
        (["overview", "--print", "times"], "--figure writes no page, so --print has nothing to do: leave one out"),
        (["overview", "-o", "fig.pdf", "--csv", "a.csv"], "--figure writes no page, so --csv has nothing to do"),
        (["overview", "-o", "fig.doc"], "fig.doc: the name of a figure ends in .pdf, .svg, .png"),
        (["overview", "-o", "fig.pdf", "--width", "3"], "'3' must be a width from 1in to 40in, with its unit"),
    ],
)
def test_what_cannot_be_plotted_is_one_sentence(results, capsys, words, said):
    with contextlib.suppress(SystemExit):  # of the parser
        assert main(["report", "--figure", *words]) == 1
    assert said in capsys.readouterr().err
    assert not list(results.parent.glob("fig.*"))


def test_the_tables_of_a_section_are_printed(results, capsys):
    assert main(["report", "--print", "times"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^1,024 × 120 busy .* 0\.3000 .* 3\.0 GiB", text, re.MULTILINE)
    assert main(["report", "--print", "overview"]) == 0
    assert capsys.readouterr().out == "section overview has no tables\n"
    assert main(["report", "--print", "nothing"]) == 1
    assert "section 'nothing' is not known: it must be one of overview, " in capsys.readouterr().err


def test_all_records_as_a_table_and_results_by_default(results, tmp_path, capsys):
    assert main(["report", "--csv", "all.csv"]) == 0
    assert capsys.readouterr().out == "report.html: 2 records\n"
    with open(tmp_path / "all.csv", encoding="utf-8") as stream:
        rows = {row["case"]: row for row in csv.DictReader(stream)}
    assert float(rows["busy"]["inference_seconds"]) == 0.3
    assert (rows["busy"]["other_work_share"], rows["quiet"]["other_work_share"]) == ("0.25", "")


def test_records_as_a_frame(results):
    frame = spdnn.load_records("results").set_index("case")
    assert frame.loc["busy", "inference_seconds"] == 0.3
    assert frame.loc["quiet", "peak_memory_bytes"] == 3 << 30
    assert frame["other_work_share"].isna().tolist().count(True) == 1
    assert {"edges_per_second", "edges_per_second_low", "edges_per_second_high", "repeats"} <= set(frame.columns)
    refuses("there is no such file or folder", spdnn.load_records, "nowhere")
