"""The table of downloads: the one that ships is whole, and every kind of bad row is named with its line."""

import pytest
from refusals import refuses

from spdnn.core import challenge
from spdnn.formats.catalog import COLUMNS, read_sources

ROW = {
    "name": "a",
    "urls": "https://example.org/a.gz http://example.org/a.gz",
    "algorithm": "md5",
    "digest": "0" * 32,
    "digest_of": "content",
    "bytes": "12",
    "at_most": "",
    "seconds": "600",
    "stall": "60",
    "redirects": "5",
    "path": "folder/a.gz",
    "note": "",
}


def write(path, *rows, columns=COLUMNS):
    lines = ["\t".join(columns), *("\t".join(row.values()) for row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_table_that_ships(root):
    sources = read_sources(root / "config" / "data.tsv")
    names = {"mnist-train-images", "dlmc"}
    names |= {f"{kind}-{neurons}" for kind in ("images", "network") for neurons in challenge.WIDTHS}
    names |= {f"categories-{p.neurons}-{p.layers}" for p in challenge.PROBLEMS}
    assert set(sources) == names
    mnist = sources["mnist-train-images"]
    assert (mnist.digest, mnist.digest_of, mnist.size) == (challenge.MNIST_SHA256, "content", None)
    assert len(mnist.urls) == 2
    for p in challenge.PROBLEMS:
        assert sources[f"categories-{p.neurons}-{p.layers}"].digest == challenge.TRUTH_SHA256[p.neurons]
    assert sources["network-65536"].size == 15_882_663_547
    assert sources["images-65536"].size == 1_024_820_347
    assert all(source.size or source.most < 10**10 for source in sources.values())
    unknown = {name for name, source in sources.items() if not (source.digest or source.size)}
    assert unknown == {"dlmc"}  # nothing is published of it, so what is read from it is checked matrix by matrix
    assert len({source.path for source in sources.values()}) == len(sources)


def test_a_table_of_the_users_own(tmp_path, monkeypatch):
    """In place of the one that ships."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPDNN_SOURCES", "~/own.tsv")
    refuses(f"{tmp_path}/own.tsv: there is no such table of downloads", read_sources)
    write(tmp_path / "own.tsv", ROW)
    assert list(read_sources()) == ["a"]
    monkeypatch.setenv("SPDNN_SOURCES", "")
    assert "network-1024" in read_sources()


def test_a_row_is_read_as_it_stands(tmp_path):
    source = read_sources(write(tmp_path / "t.tsv", ROW))["a"]
    assert source.urls == tuple(ROW["urls"].split())
    assert (source.algorithm, source.digest, source.size, source.path) == ("md5", "0" * 32, 12, "folder/a.gz")


BAD = {
    "name": ["", "a"],  # the second: there twice
    "urls": ["", "ftp://example.org/a", "example.org/a", "https://"],
    "algorithm": ["", "sha1", "SHA256"],
    "digest": ["", "0" * 31, "0" * 64, "g" * 32],
    "digest_of": ["", "gz"],
    "bytes": ["0", "-1", "1,000", "x", ""],  # the last: without at_most
    "at_most": ["0", "x", "13"],  # the last: with bytes
    "seconds": ["", "0", "-1", "1.5"],
    "stall": ["", "0", "x"],
    "redirects": ["", "0", "x"],
    "path": ["", "/etc/a", "../a", "b/../../a"],
}


@pytest.mark.parametrize(("column", "value"), [(c, v) for c, values in BAD.items() for v in values])
def test_a_bad_row_is_named_with_its_line(column, value, tmp_path):
    good = ROW if column == "name" else {**ROW, "name": "first"}
    path = write(tmp_path / "t.tsv", good, {**ROW, column: value})
    assert str(path) in refuses("line 3: ", read_sources, path)


def test_bad_tables(tmp_path):
    path = tmp_path / "t.tsv"
    for columns in (COLUMNS[:-1], ("id", *COLUMNS[1:])):
        refuses("line 1: the columns must be", read_sources, write(path, columns=columns))
    path.write_text("")
    refuses("line 1", read_sources, path)
    path.write_text("\t".join(COLUMNS) + "\na\tb\n")
    refuses("line 2: 2 columns", read_sources, path)
    refuses("no such", read_sources, tmp_path / "absent.tsv")
