"""The figures of a page as files: whole, standing alone, and never in place of what is not theirs."""

import csv
import errno
import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from docutils.core import publish_parts
from refusals import refuses

from spdnn.report import page
from spdnn.report.common.drawing import Drawing, caption, remove_figures, standalone, write_figures
from spdnn.report.rendering import RecordFolder, render
from spdnn.runs.records.files import write_record
from tests.report.records import collected, drawn, made_record, stored

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 8 8">'
    "<title>T</title></svg>"
)  # as the plotting library begins one
KINDS = (".csv", ".rst", ".svg")


def made(name="throughput", category="networks", title="A title", text="A caption."):
    return Drawing(name, category, title, text, SVG, "x,y\n1,2\n")


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_two_processes_draw_the_same_page_and_a_summary_is_what_it_says_first(tmp_path):
    paths, made = stored(tmp_path, made_record()), []
    for processes in (1, 2):
        (folder := tmp_path / str(processes)).mkdir()
        files = {"figures": folder / "figures", "summary": folder / "summary.txt"}
        render([RecordFolder(paths, decided=["GPUs: none"])], folder / "report.html", processes=processes, **files)
        made.append({path: (folder / path).read_bytes() for path in listed(folder) if path != "summary.txt"})
    assert made[0] == made[1]
    assert b"GPUs: none" in made[0]["report.html"]
    ended, compared, where = (tmp_path / "1/summary.txt").read_text().splitlines()
    assert (ended, where) == ("1,024 × 120: passed verification", f"report: {tmp_path}/1/report.html")
    assert compared.startswith("Same work: 2 CPU cores are ")


LOCKS = "multiprocessing.synchronize"


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EROFS, errno.ENOSPC, errno.ENOSYS, None])
def test_where_processes_can_have_no_locks_one_process_draws(tmp_path, monkeypatch, number):
    """/dev/shm cannot be written, is not there or full; or Python was built without such locks."""

    def lock(*arguments):
        raise OSError(number, os.strerror(number))

    if number:
        monkeypatch.setattr(f"{LOCKS}._multiprocessing.SemLock", lock)
    else:
        monkeypatch.setitem(sys.modules, LOCKS, None)
        monkeypatch.setattr("concurrent.futures.process._system_limits_checked", False)
    monkeypatch.setattr("spdnn.report.page._draw", lambda place: place)
    shown = page.sections(collected([made_record()]))
    drawn = page.drawings(shown, 2)
    assert [*drawn.values()] == [*range(len(drawn))] != []
    assert [*drawn] == [*page.drawings(shown, 1)]


def test_figures_of_a_page(tmp_path):
    page, folder = tmp_path / "report.html", tmp_path / "figures"
    paths = stored(tmp_path, made_record())
    render([RecordFolder(paths)], page, figures=folder)
    names = {path.relative_to(folder).with_suffix("") for path in folder.glob("*/*.svg")}
    tables = {path.relative_to(folder).with_suffix("") for path in folder.glob("*/*.rst")} - names
    assert Path("overview/overview") in names
    assert all(name.name.startswith("table-") for name in tables)
    files = [f"{name}{kind}" for name in names for kind in KINDS]
    assert listed(folder) == sorted([*files, *(f"{name}{kind}" for name in tables for kind in KINDS[:2])])
    for name in names | tables:
        base = folder / name
        head, *rows = csv.reader(base.with_suffix(".csv").open(encoding="utf-8"))
        assert rows
        assert {len(row) for row in rows} == {len(head)}
        assert base.with_suffix(".rst").read_text("utf-8").startswith("**")
    for name in names:
        svg = (folder / f"{name}.svg").read_text("utf-8")
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    (table,) = tables & {Path("networks/table-ours")}
    (row,) = csv.DictReader((folder / f"{table}.csv").open(encoding="utf-8"))
    assert float(row["inference_seconds"]) == 0.11


def test_a_page_without_figures_has_an_empty_folder(tmp_path):
    render([], tmp_path / "report.html", figures=tmp_path / "figures")
    assert os.listdir(tmp_path / "figures") == []


def test_nothing_of_an_earlier_page_remains(tmp_path):
    folder = tmp_path / "figures"
    write_figures([made(), made("survivors", "times")], folder)
    (folder / ".snakemake_timestamp").touch()
    write_figures([made("other", "times")], folder)
    assert listed(folder) == [f"times/other{kind}" for kind in KINDS]
    remove_figures(folder)
    remove_figures(folder)  # there is none
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "networks/notes.txt",
        "networks/mine.csv",
        "networks/throughput.png.bak",
        "networks/a/b.svg",
        "mine/",
    ],
)
def test_a_folder_with_anything_else_is_refused(tmp_path, name):
    folder = tmp_path / "figures"
    write_figures([made()], folder)
    other = folder / name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.mkdir() if name.endswith("/") else other.touch()
    before = listed(tmp_path)
    for change in (lambda: write_figures([made("other")], folder), lambda: remove_figures(folder)):
        refuses(r"figures: \S+ is no figure of a report, and would be removed", change)
    assert listed(tmp_path) == before
    assert other.exists()


def test_a_figure_without_all_its_files_is_not_ours(tmp_path):
    write_figures([made()], tmp_path / "figures")
    (tmp_path / "figures/networks/throughput.rst").unlink()
    refuses(r"networks/throughput\.csv is no figure", write_figures, [made()], tmp_path / "figures")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "figures").touch()
    refuses("is not a folder; figures are written into one of their own", write_figures, [made()], tmp_path / "figures")


def test_nothing_is_left_of_what_was_not_finished(tmp_path):
    folder = tmp_path / "figures"
    write_figures([made()], folder)
    before = listed(tmp_path)

    def interrupted():
        yield made("other")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_figures(interrupted(), folder)
    assert listed(tmp_path) == before


def test_an_svg_has_its_namespaces_once():
    whole = standalone(SVG)
    assert ElementTree.fromstring(whole).tag == "{http://www.w3.org/2000/svg}svg"
    for text in (whole, standalone(drawn("overview", [made_record()])["overview"].svg)):
        assert text.count(" xmlns=") == text.count(" xmlns:xlink=") == 1
        assert text.count('fill="#ffffff"') == 1


@pytest.mark.parametrize(
    "text",
    [
        "GPipe* and *SNIG*",
        "a_ b__ _c `d` e`f`_",
        "|x| \\ 1 < 2 & 3",
        ".. include:: /etc/passwd",
        "- a",
        "1. a",
        "ends::",
    ],
)
def test_a_caption_says_what_it_was_given(text):
    html = publish_parts(f"{caption(text, text)}\nNext.", writer="html")["body"]
    assert "system-message" not in html
    words = "".join(ElementTree.fromstring(f"<div>{html}</div>").itertext()).split()
    assert " ".join(words) == f"{text}. {text} Next."


@pytest.mark.needs("chromium")
@pytest.mark.xdist_group("browser")
def test_an_svg_opens_alone_with_its_text_on_white(tmp_path, opened):
    write_figures([drawn("overview", [made_record()])["overview"]], tmp_path)
    visit = opened(tmp_path / "overview/overview.svg", scheme="dark")
    assert visit.page.locator("text", has_text="TeraEdges/s").first.is_visible()
    family = "text => getComputedStyle(text).fontFamily"
    assert "sans-serif" in visit.page.locator("text").first.evaluate(family)
    behind = visit.page.locator("svg > rect").first
    assert behind.evaluate("rect => getComputedStyle(rect).fill") == "rgb(255, 255, 255)"
    whole = visit.page.locator("svg").first.bounding_box()
    assert {key: round(value) for key, value in behind.bounding_box().items()} == {
        key: round(value) for key, value in whole.items()
    }
    assert not visit.noticed


def test_nothing_is_written_where_the_page_cannot_be(tmp_path):
    paths, folder = stored(tmp_path, made_record()), tmp_path / "figures"
    write_figures([made()], folder)
    before = {name: (folder / name).read_bytes() for name in listed(folder)}
    (tmp_path / "more").mkdir()
    others = stored(tmp_path / "more", made_record("another", (0.5, 0.6, 0.7)))
    for output, told in (
        (tmp_path / "nowhere" / "page.html", "does not exist"),
        (folder, "is a folder"),
        (folder / "page.html", "which is replaced whole"),
        (others[0], "this output would replace"),
    ):
        refuses(told, render, [RecordFolder(others)], output, figures=folder)
        assert {name: (folder / name).read_bytes() for name in listed(folder)} == before
    assert json.loads(others[0].read_text())["case"] == "another"
    refuses("which is replaced whole", render, [RecordFolder(paths)], tmp_path / "new", figures=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_text_in_another_encoding_is_escaped(tmp_path):
    record = made_record("d\udcff.case")
    record["environment"]["command"] = "spdnn run d\udcff.safetensors"
    write_record(tmp_path / "record.json", record)
    render([RecordFolder([tmp_path / "record.json"])], tmp_path / "report.html", figures=tmp_path / "figures")
    assert "spdnn run d&amp;#56575;.safetensors" in (tmp_path / "report.html").read_text("utf-8")
