"""The tables of published results: sound, closed, and with the known figures in them."""

import re
from pathlib import Path

import pytest
from refusals import refuses

from spdnn.core import challenge, config_tables
from spdnn.core.errors import Unavailable
from spdnn.runs.records.published import (
    OPERATION_QUANTITIES,
    QUANTITIES,
    SPANS,
    Baseline,
    OperationBaseline,
    read_baselines,
    read_operation_baselines,
    read_preparations,
)

CONFIG = Path(__file__).parents[3] / "config"
ROW = "A,2020,HPEC,NVIDIA V100,1,1024,120,0.0224481,1.051e+13,not stated,no,both,B 2020"

# Section 7 of the project's notes on the challenge, in TeraEdges/s: system, hardware, devices (None: any number),
# then 1024-120, 1024-1920, 4096-120, 4096-1920, 16384-120, 16384-1920, 65536-120, 65536-1920.
ANCHORS = [
    ("at-scale SpDNN (Hidayetoglu)", "NVIDIA V100", "1", 10.51, 14.30, 9.45, 13.88, 6.15, 7.84, 3.47, 3.93),
    ("at-scale SpDNN (Hidayetoglu)", "NVIDIA A100", "1", 16.74, 20.68, 14.27, 19.86, 11.60, 15.27, 8.15, 9.33),
    ("at-scale SpDNN (Hidayetoglu)", "NVIDIA V100", None, 29.2, 28.8, 82.3, 82.3, 146.9, 146.4, 179.6, 171.4),
    ("SNIG", "GeForce RTX 2080 Ti", "1", 0.295, 0.719, 0.587, 0.867, 0.852, 1.11, 1.02, 1.49),
    ("SNIG", "GeForce RTX 2080 Ti", "4", 1.25, 2.16, 2.24, 2.95, 2.92, 3.96, 3.44, 5.56),
    ("XY-2021", "NVIDIA RTX A6000", "1", 15.8, 26.4, 24.2, 48.4, 26.4, 55.2, 27.0, 55.6),
    ("SNICIT", "NVIDIA RTX A6000", "1", 17.6, 52.1, 29.1, 169, 33.7, 337, 32.6, 351),
    ("SuiteSparse:GraphBLAS", "", None, 0.153, 0.275, 0.139, 0.186, 0.105, 0.120, 0.105, 0.113),
    ("KK-SpDNN", "Intel Xeon Skylake or Xeon Phi", None, 0.276, 0.280, 0.212, 0.216, 0.127, 0.131, 0.091, 0.084),
]
NETWORKS = [(neurons, layers) for neurons in challenge.WIDTHS for layers in (120, 1920)]


@pytest.fixture(scope="module")
def rows():
    return read_baselines(CONFIG / "baselines.csv")


HEADER = ",".join(Baseline._fields[:-1])


def written(tmp_path, *lines, header=HEADER):
    path = tmp_path / "baselines.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_all_rows_are_there(rows):
    assert len(rows) == 693
    assert {row.span for row in rows} == set(SPANS)
    assert {row.quantity for row in rows} == set(QUANTITIES)
    assert {row.kind for row in rows} == {"CPU", "GPU", "FPGA"}


def test_rows_without_rate_or_network(rows):
    assert sorted((row.system, row.layers) for row in rows if not row.finished) == [
        ("BF (SNIG authors' baseline)", 480),
        ("BF (SNIG authors' baseline)", 1920),
        ("BF (SNIG authors' baseline)", 1920),
    ]
    assert sum(row.edges_per_second is None for row in rows) == 19  # these three and 16 of the FPGA
    assert [row.edges_per_second for row in rows if row.neurons is None] == [1.16e12]
    assert all(row.seconds or row.edges_per_second for row in rows)


def test_only_snicit_is_lossy(rows):
    assert {row.system for row in rows if row.lossy} == {
        "SNICIT", "SNICIT (as run by GLARE authors)", "SNICIT+GLARE (as run by GLARE authors)",
    }  # fmt: skip


@pytest.mark.parametrize("anchor", ANCHORS, ids=lambda anchor: f"{anchor[0]} {anchor[2]}")
def test_known_figures(rows, anchor):
    system, hardware, devices, *rates = anchor
    for (neurons, layers), rate in zip(NETWORKS, rates, strict=True):
        found = [
            row.edges_per_second
            for row in rows
            if row.system.startswith(system)
            and row.hardware.startswith(hardware)
            and devices in (None, row.devices)
            and (row.neurons, row.layers) == (neurons, layers)
            and row.edges_per_second
        ]
        assert any(value / 1e12 == pytest.approx(rate, rel=0.006) for value in found), (neurons, layers, rate)


def test_sources_are_citations(rows):
    for row in rows:
        assert not re.search(r"https?:|\.(pdf|png|md|log|cu|cpp|hpp)\b|[{}]", row.source)
        assert len(row.source) < 130


def test_readme_defines_the_spans():
    text = (CONFIG / "README.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([a-z ,]+)` \| (.+) \|$", text, re.MULTILINE)).items() >= SPANS.items()


def test_default_table(tmp_path, monkeypatch):
    (tmp_path / "workflow").mkdir()
    for name in ("pyproject.toml", "workflow/Snakefile"):
        (tmp_path / name).touch()
    monkeypatch.setattr(config_tables, "CHECKOUT", tmp_path)
    with pytest.raises(Unavailable, match=r"baselines\.csv"):
        read_baselines()
    (tmp_path / "config").mkdir()
    written(tmp_path / "config", ROW)
    assert read_baselines()[0].system == "A"


def test_sound_rows(tmp_path):
    given_up = ROW.replace("0.0224481,1.051e+13", ">1800,").replace("both", "seconds").replace("1024,", "4096,")
    first, second = read_baselines(written(tmp_path, ROW, given_up))
    assert (first.seconds, first.finished, first.device_class) == (0.0224481, True, "one device")
    assert (second.seconds, second.finished, second.edges_per_second) == (1800.0, False, None)


def test_whole_seconds_are_rounded(tmp_path):
    assert read_baselines(written(tmp_path, ROW.replace("0.0224481,1.051e+13", "2,1.533e+11")))
    refuses("do not follow", read_baselines, written(tmp_path, ROW.replace("0.0224481,1.051e+13", "2.0,1.533e+11")))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("not stated", "whole", "span 'whole' must be one of"),
        (",no,", ",maybe,", "lossy 'maybe'"),
        ("both", "all", "quantity 'all'"),
        ("0.0224481", "nan", "seconds 'nan' must be a positive number"),
        ("0.0224481", "0", "seconds '0' must be a positive number"),
        ("0.0224481", "-1", "seconds '-1' must be a positive number"),
        ("0.0224481", "1e999", "seconds '1e999' must be a positive number"),
        ("0.0224481", "", "quantity is 'both', but seconds is empty"),
        ("1.051e+13", "1.2e+13", "do not follow"),
        ("0.0224481", ">0.0224481", "did not finish has no rate"),
        ("1024", "", "both be given"),
        ("1024", "1.5", "neurons '1.5' must be a whole number"),
        ("2020,HPEC", "20x0,HPEC", "year '20x0'"),
        ("NVIDIA V100", "abacus", "hardware 'abacus'"),
        ("V100,1,", "V100,many,", "devices 'many'"),
        ("B 2020", "", "source is empty"),
        (",both", "", "12 cells, not 13"),
    ],
)
def test_unsound_rows(tmp_path, old, new, told):
    path = written(tmp_path, ROW.replace("A,", "Z,", 1), ROW.replace(old, new, 1))
    refuses(f"^{re.escape(str(path))} line 3: .*{re.escape(told)}", read_baselines, path)


def test_unsound_tables(tmp_path):
    refuses("line 3: line 2 is the same figure", read_baselines, written(tmp_path, ROW, ROW))
    refuses("line 1: the columns must be", read_baselines, written(tmp_path, ROW, header="system"))
    refuses("there is no such table", read_baselines, tmp_path / "absent.csv")
    path = tmp_path / "baselines.csv"
    for content, told in ((b"", "line 1"), (b"\xff\xfe", "UTF-8"), (f'{HEADER}\n"unclosed'.encode(), "CSV")):
        path.write_bytes(content)
        refuses(told, read_baselines, path)


def test_preparations_name_their_sources():
    hours = {row.stage: row.seconds / 3600 for row in read_preparations()}
    assert hours == {"download": 2, "preparation of the weights": 2, "reading files": 1}
    assert all("about" in row.source or "approximately" in row.source for row in read_preparations())


def test_published_figures_of_operations():
    rows = read_operation_baselines()
    assert {row.quantity for row in rows} == set(OPERATION_QUANTITIES)
    assert all("arXiv:2006.10901" in row.source for row in rows)
    speedups = {row.network: row.value for row in rows if row.quantity == "speed-up"}
    assert speedups["transformer"] == round(67_857 / 32_477, 2)
    assert speedups["mobilenet"] == round(2_095 / 1_729, 2)
    (memory,) = (row for row in rows if row.quantity == "memory ratio")
    assert memory.value == round(9.88 / 0.77, 1)


OF_OPERATION = "spmm,,speed-up,2.5,2.5x,A GPU,a library,A paper"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("spmm", "line 2: 1 cells, not 8"),
        (OF_OPERATION.replace("A paper", " "), "line 2: source is empty"),
        (OF_OPERATION.replace("speed-up", "speed"), "quantity 'speed' must be one of: speed-up;"),
        (OF_OPERATION.replace("2.5,", "0,", 1), "value '0' must be a positive number"),
    ],
)
def test_unsound_figures_of_operations(tmp_path, row, sentence):
    header = ",".join(OperationBaseline._fields)
    assert read_operation_baselines(written(tmp_path, OF_OPERATION, header=header))[0].value == 2.5
    refuses(sentence, read_operation_baselines, written(tmp_path, row, header=header))
    refuses("line 1: the columns must be operation,", read_operation_baselines, written(tmp_path, row))
