"""`spdnn compare`: what it prints on terminals and into pipes, how it ends, and that records' texts stay texts."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import threading

import pytest
import refusals
from operation_cases import made_operation
from refusals import spdnn

from spdnn.core.table import COLOURS, PLAIN, columns_of
from spdnn.runs.records.cases import write_cases
from spdnn.runs.records.comparison import FASTER, NO_DIFFERENCE, SLOWER, TOO_FEW
from tests.report.records import made_record, made_verdict

TIGHT = (0.1, 0.101, 0.102, 0.103, 0.104)
OWN = {"official": False, "source": "digits", "neurons": 64, "layers": 12, "inputs": 1000}
HOSTILE = "\x1b[2J\x1b]0;title\x07 a \u202e\u200bname \r\n\x9b31m with 漢字漢字漢字 e\u0301 in it" + "x" * 100
COLOUR = re.compile("\x1b\\[(?:32|31|0)m")


def scaled(values, factor):
    return tuple(value * factor for value in values)


def stored(folder, *records):
    """A folder with these records in one file."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


@pytest.fixture
def before(tmp_path):
    """One record of each verdict to come, one that B has not, and one of an operation."""
    return stored(
        tmp_path / "before",
        made_record("halved", TIGHT),
        made_record("doubled", TIGHT, layers=480),
        made_record("as-before", TIGHT, layers=1920),
        made_record("short", TIGHT[:3], **OWN),
        made_record("gone", TIGHT, **OWN | {"layers": 8}),
        made_operation("ours", TIGHT),
    )


@pytest.fixture
def after(tmp_path):
    return stored(
        tmp_path / "after",
        made_record("halved", scaled(TIGHT, 0.5)),
        made_record("doubled", scaled(TIGHT, 2), layers=480),
        made_record("as-before", TIGHT, layers=1920),
        made_record("short", scaled(TIGHT[:3], 0.5), **OWN),
        made_operation("ours", scaled(TIGHT, 0.25)),
        made_operation("mkl", TIGHT),
    )


@pytest.fixture
def on_terminal(monkeypatch):
    """A function that runs the command on a terminal so wide: what it writes there, and its exit status."""

    def found(width, *arguments, encoding="utf-8", **environment):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        parts = []
        reader = threading.Thread(target=lambda: parts.extend(iter(lambda: _read(leader), b"")))
        reader.start()
        try:
            with monkeypatch.context() as changed, open(follower, "w", encoding=encoding) as stream:
                for name in ("COLUMNS", "LINES", "NO_COLOR"):
                    changed.delenv(name, raising=False)
                for name, value in {"TERM": "xterm", **environment}.items():
                    changed.setenv(name, value)
                changed.setattr(sys, "stdout", stream)
                changed.setattr(sys, "__stdout__", stream)
                status = spdnn("compare", *arguments)
        finally:
            reader.join()
            os.close(leader)
        return b"".join(parts).decode().replace("\r\n", "\n"), status

    return found


def _read(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the other end is closed
        return b""


def shown(capsys, *arguments, status=0):
    assert spdnn("compare", *arguments) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def rows(text):
    """(name, seconds of A, of B, ratio, rest) of each line of a table in one line a pair."""
    table = text.split("\n\n")[1].splitlines()[1:]
    return [re.fullmatch(r"(.*?) +(\S+) +(\S+) +(\S+) \((\S+) to (\S+)\) +(.*)", line).groups() for line in table]


def test_the_table(before, after, capsys):
    text = shown(capsys, before, after)
    found = {name: rest for name, *rest in rows(text)}
    assert list(found) == ["as-before", "doubled", "halved", "short", "spmm.a.transformer.ffn_1.n256.s90.ours.t2"]
    assert found["halved"][:3] == ["0.1020", "0.05100", "2.000"]
    assert found["doubled"][:3] == ["0.1020", "0.2040", "0.5000"]
    verdicts = [re.split("  +", row[-1]) for row in found.values()]
    assert verdicts == [
        ["5, 5", NO_DIFFERENCE], ["5, 5", SLOWER], ["5, 5", FASTER], ["3, 3", TOO_FEW], ["5, 5", FASTER],
    ]  # fmt: skip
    assert "A/B, of median seconds, is how many times as fast B is: above 1, B is faster." in text
    assert "5 pairs: 2 faster, 1 slower, 1 no difference beyond noise, 1 too few samples." in text
    assert "Geometric mean of A/B: 1.516." in text  # of 2, 1/2, 1, 2 and 4
    assert "only with 4 and 4 samples or more (3 and 5, 2 and 8, 1 and 40)" in text
    assert "In A alone, 1 record: gone." in text
    assert "In B alone, 1 record: spmm.a.transformer.ffn_1.n256.s90.mkl.t2." in text
    assert "Different" not in text
    assert "how runs on different days differ" in text
    assert f"A: {before}, 6 records; commit abcdef123456; 2025-01-02" in text


def test_sorted_by_ratio_the_slowest_is_first(before, after, capsys):
    ratios = [float(row[3]) for row in rows(shown(capsys, before, after, "--sort", "ratio"))]
    assert ratios == [0.5, 1, 2, 2, 4]


def as_json(capsys, *arguments):
    """What --json writes."""
    written = arguments[0].parent / "compared.json"
    shown(capsys, *arguments, "--json", written)
    return written.read_text()


def test_json_has_the_same_rows(before, after, capsys):
    text = as_json(capsys, before, after)
    found = json.loads(text)
    (halved,) = (pair for pair in found["pairs"] if pair["name"] == "halved")
    assert halved["key"]["layers"] == 120
    assert halved["a"] == {"records": 1, "samples": 5, "median_seconds": 0.102}
    assert halved["ratio"]["median"] == pytest.approx(2)
    assert halved["ratio"]["low"] < 2 < halved["ratio"]["high"]
    assert halved["p"] == pytest.approx(2 / 252)
    assert halved["verdict"] == FASTER
    assert found["verdicts"] == {FASTER: 2, SLOWER: 1, NO_DIFFERENCE: 1, TOO_FEW: 1}
    assert [one["name"] for one in found["only_a"]] == ["gone"]
    assert found["a"]["told"]["machine"] == ["A CPU, 2 cores"]
    assert found["geometric_mean"] == pytest.approx(8 ** (1 / 5))
    printed = [row[0] for row in rows(shown(capsys, before, after))]
    assert [pair["name"] for pair in found["pairs"]] == printed
    lines = (before / "records.jsonl").read_text().splitlines(keepends=True)
    (before / "records.jsonl").write_text("".join(lines[:2]))
    for number, line in enumerate(lines[:1:-1]):  # in other files and another order
        (before / f"{number}.jsonl").write_text(line)
    assert as_json(capsys, before, after) == text


def test_fail_slower(before, after, capsys):
    assert "slower" in shown(capsys, before, after)
    shown(capsys, before, after, "--fail-slower", status=1)
    shown(capsys, before, before, "--fail-slower")


def test_several_records_of_a_case_are_marked(before, after, capsys):
    assert "together" not in shown(capsys, before, after)
    (after / "again.json").write_text(json.dumps(made_record("halved", (0.05, 0.06, 0.07))))
    text = shown(capsys, before, after)
    (row,) = (row for row in rows(text) if row[0] == "halved")
    assert row[-1].split("  ")[0] == "5, 8*"
    assert "*: samples of several records of the set, taken together." in text


def test_what_differs_is_told(tmp_path, before, capsys):
    record = made_record("halved", TIGHT)
    record["environment"] |= {"cpu": "Another CPU", "commit": None, "versions": {"numpy": "2.2.0", "python": "3.12.1"}}
    text = shown(capsys, before, stored(tmp_path / "there", record))
    told = "Different machines, and the ratios compare these too: A on A CPU, 2 cores; B on Another CPU, 2 cores."
    assert told in text
    assert "Different too: numpy 2.1.0 in A, 2.2.0 in B." in text
    assert "commit unknown" in text


def test_many_without_a_like_are_counted(tmp_path, before, capsys):
    records = [made_operation("ours", layer=f"l{place:02}") for place in range(13)]
    text = shown(capsys, before, stored(tmp_path / "many", made_record("halved", TIGHT), *records))
    (line,) = (line for line in text.splitlines() if line.startswith("In B alone"))
    assert line.startswith("In B alone, 13 records: spmm.a.transformer.l00.")
    assert line.endswith("; and 3 more.")
    assert line.count("spmm") == 10


def test_a_workflows_results(tmp_path, before, capsys):
    results = tmp_path / "results"
    (results / "records").mkdir(parents=True)
    (results / "records" / "halved.json").write_text(json.dumps(made_record("halved", TIGHT)))
    for case, passed in (("halved", True), ("wrong", False)):
        (results / "runs" / case).mkdir(parents=True)
        (results / "runs" / case / "verdict.json").write_text(json.dumps(made_verdict(passed=passed)))
    write_cases(results / "cases.json", ["halved", "wrong"], [], [])
    text = shown(capsys, results, before)
    assert "1 pair: 1 no difference beyond noise" in text
    assert "Failed verification in A, 1 case: wrong." in text
    assert json.loads(as_json(capsys, results, before))["a"]["failed_verification"] == ["wrong"]
    (results / "runs" / "halved" / "verdict.json").write_text(json.dumps(made_verdict(passed=False)))
    said = refused(capsys, results, before)
    assert said == f"{results}: halved: its verification failed, so its record has no number"


def refused(capsys, *arguments, status=2):
    return refusals.refused(capsys, "compare", *arguments, status=status)


def test_nothing_that_matches_is_one_sentence_on_the_nearest(tmp_path, before, capsys):
    other = made_record("halved", TIGHT) | {"threads": 4}
    far = made_record("far", TIGHT, reductions=(), **OWN)
    there = stored(tmp_path / "there", other, far)
    sentence = refused(capsys, stored(tmp_path / "here", made_record("halved", TIGHT)), there, status=1)
    assert sentence.endswith("(halved, threads 2 and halved, threads 4) is the same but for threads: 2 and 4")
    operations = stored(tmp_path / "operations", made_operation())
    sentence = refused(capsys, operations, there, "--fail-slower", status=1)
    assert sentence.endswith("the records are of operations in one and of runs in the other")


def test_errors_are_one_sentence_and_status_2(tmp_path, before, capsys):
    assert refused(capsys, tmp_path / "nowhere", before).endswith("nowhere: there is no such file or folder")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert "broken.json: it is not a run record in JSON" in refused(capsys, before, broken)
    record = made_record()
    broken.write_text(json.dumps({**record, "verdict": made_verdict(categories=1812, passed=False)}))
    assert "broken.json: verdict.passed: verification failed" in refused(capsys, before, broken)
    (tmp_path / "empty.jsonl").write_text("")
    assert refused(capsys, before, tmp_path / "empty.jsonl").endswith("empty.jsonl: no records there")
    record["environment"]["versions"] = {"\x1b[31mnumpy": 1}
    broken.write_text(json.dumps(record))
    assert refused(capsys, before, broken).isprintable()


@pytest.fixture
def hostile(tmp_path):
    """Two folders whose texts are all hostile, as far as a record may hold them, and whose names are long."""
    for place, factor in (("a", 1), ("b", 0.5)):
        record, product = made_record(HOSTILE, scaled(TIGHT, factor)), made_operation("ours", scaled(TIGHT, factor))
        for one in (record, product):
            one["environment"] |= {"cpu": HOSTILE + place, "commit": HOSTILE + place,
                                   "versions": {HOSTILE: HOSTILE + place}}  # fmt: skip
        record["engine"]["notes"]["instruction_set"] = HOSTILE + place
        product["case"], product["program"]["version"] = HOSTILE, (HOSTILE + place)[-200:]
        alone = made_record(HOSTILE + place, TIGHT, layers=480 if place == "a" else 1920)
        stored(tmp_path / place, record, product, alone)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("width", [80, 200])
def test_lines_fit_the_terminal(on_terminal, before, after, hostile, width):
    for here, there in ((before, after), hostile):
        text, status = on_terminal(width, here, there)
        plain = COLOUR.sub("", text)
        assert status == 0
        assert all(line.isprintable() for line in plain.splitlines())
        table = plain.split("\n\n")[1].splitlines()
        assert max(map(columns_of, table)) <= width
        assert len(table) > (6 if here is before else 3) or width == 200


def test_a_pipe_has_whole_names_and_no_colours(hostile, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = shown(capsys, *hostile)
    assert all(line.isprintable() for line in text.split("\n"))
    table = text.split("\n\n")[1]
    assert table.count("x" * 100) == 2
    assert "…" not in table


def test_hostile_texts_in_json_and_in_errors(hostile, capsys):
    assert all(line.isprintable() for line in as_json(capsys, *hostile).splitlines())
    (hostile[1] / "records.jsonl").write_text(json.dumps(made_record(HOSTILE, TIGHT) | {"threads": 4}))
    assert refused(capsys, *hostile, status=1).isprintable()


def test_colours_are_on_the_verdict_alone_and_can_be_refused(on_terminal, before, after):
    text, _ = on_terminal(120, before, after)
    assert text.count(f"{COLOURS['good']}faster{PLAIN}\n") == 2
    assert text.count(f"{COLOURS['bad']}slower{PLAIN}\n") == 1
    assert len(COLOUR.findall(text)) == 6
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain, _ = on_terminal(120, before, after, **environment)
        assert plain == COLOUR.sub("", text)


def test_a_terminal_that_knows_few_letters(on_terminal, hostile):
    text, status = on_terminal(60, *hostile, encoding="ascii")
    assert status == 0
    assert "?" in text


def test_machines_that_changed_places_are_told(tmp_path, capsys):
    def both(first, second):
        records = made_record("halved", TIGHT), made_record("doubled", TIGHT, layers=480)
        for record, cpu in zip(records, (first, second), strict=True):
            record["environment"]["cpu"] = cpu
        return records

    one, other = stored(tmp_path / "one", *both("Fast", "Slow")), stored(tmp_path / "other", *both("Slow", "Fast"))
    text = shown(capsys, one, other)
    assert "Different machines in A and in B in 2 pairs, and the ratios compare these too: doubled; halved." in text
    assert "Different machines" not in shown(capsys, one, one)
