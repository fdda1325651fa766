"""Octave reads what spdnn writes, computes the same categories, and has a record.

The challenge's reference program is no part of this project. `octave/` has our own functions of the same names, written
from the specification; where SPDNN_CHALLENGE_REFERENCE names the program itself, it is run too.
"""

import hashlib
import os
import shutil
from pathlib import Path

import octave_reference as reference
import pytest

from spdnn.cli import main as spdnn
from spdnn.core.errors import SpdnnError
from spdnn.runs.records.files import read_record

OWN = Path(__file__).parent / "octave"


@pytest.fixture
def own(tmp_path, set_all):
    """The folder of a copy of our own functions, and a function that takes them for the program as they are now."""
    folder = shutil.copytree(OWN, tmp_path / "own")

    def take():
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        assert files.keys() == reference.FILES.keys()
        set_all(reference, FILES=files)

    return folder, take


def run(folder, target, mnist, *words):
    return reference.main([str(folder), "--mnist", str(mnist), "--count", "600", "-o", str(target), *words])


@pytest.mark.full("octave")
@pytest.mark.needs("octave")
@pytest.mark.needs("mnist")
@pytest.mark.parametrize("program", ["own", *([reference.FOLDER] if os.environ.get(reference.FOLDER) else [])])
def test_octave_has_the_categories_of_our_files_and_a_record(own, tmp_path, mnist_file, program):
    folder, take = own
    if program == "own":
        take()
    else:
        folder = os.environ[program]
    assert run(folder, tmp_path / "records", mnist_file, "--repeats", "2") == 0
    paths = sorted((tmp_path / "records").iterdir())
    ours, theirs = map(read_record, paths)
    assert (ours.engine.name, theirs.engine.name) == ("cpu", "octave-reference")
    assert ours.comparison == theirs.comparison
    assert ours.result.categories_sha256 == theirs.result.categories_sha256
    assert (theirs.verdict.truth.kind, theirs.verdict.values.failures) == ("official", 0)
    assert theirs.result.survivors[-1] == theirs.result.categories == 7
    assert (theirs.threads, len(theirs.seconds), theirs.result.sparse_rows) == (1, 2, True)
    assert reference.COMMIT[:12] in theirs.engine.noted["library"]
    assert theirs.peak_memory_bytes > 1 << 20
    assert spdnn(["record", "check", *map(str, paths)]) == 0


@pytest.mark.full("octave")
@pytest.mark.needs("octave")
@pytest.mark.needs("mnist")
def test_wrong_categories_have_no_record(own, tmp_path, mnist_file, capsys):
    folder, take = own
    path, text = folder / "inferenceReLUvec.m", "min(32, "
    source = path.read_text()
    assert source.count(text) == 1
    path.write_text(source.replace(text, "min(0, "))
    take()
    assert run(folder, tmp_path / "records", mnist_file, "--repeats", "1") == 1
    assert "are not those of the ground truth that it read" in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


@pytest.mark.full("octave")
@pytest.mark.needs("octave")
def test_a_statement_that_fails_is_an_error_with_its_sentence():
    octave = reference.Octave()
    assert octave.run("x = 6 * 7;", "disp(x);") == "42"
    with pytest.raises(SpdnnError, match="Octave ended: error: .*nothing"):
        octave.run("y = nothing;")
    octave.close()


def test_a_folder_that_is_not_the_program_is_refused_in_a_sentence(own, tmp_path, monkeypatch, capsys):
    def told(*words):
        assert reference.main([*words, "-o", str(tmp_path / "records")]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    monkeypatch.delenv(reference.FOLDER, raising=False)
    assert reference.FOLDER in told()
    assert "it has no StrFileRead.m" in told(str(tmp_path))
    assert f"at commit {reference.COMMIT}" in told(str(own[0]))
    assert "1000 neurons" in told(str(own[0]), "--neurons", "1000")


def test_without_octave_a_sentence_names_its_package(own, tmp_path, monkeypatch, capsys):
    folder, take = own
    take()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reference.main([str(folder), "-o", str(tmp_path / "records")]) == 1
    assert "the Debian package octave" in capsys.readouterr().err
