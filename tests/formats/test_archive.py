"""Gzip read at any place: whatever is asked for, in whatever order, is what lies there."""

import gzip
import io
import itertools
import random
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.formats.archive import GzipStream, TarArchive, natural

CONTENT = random.Random(3).randbytes(300_000) + b"spdnn" * 100_000
PACKED = gzip.compress(CONTENT[:500_000], 1) + gzip.compress(CONTENT[500_000:])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CONTENT) + 10), st.integers(0, 9999)), max_size=12), st.integers(2, 9))
def test_reads_at_any_place(reads, most):
    raw = io.BufferedReader(io.BytesIO(PACKED))
    stream = io.BufferedReader(GzipStream(raw, spacing=1000, most=most), 512)
    for place, size in reads:
        stream.seek(place)
        assert stream.read(size) == CONTENT[place : place + size]
    assert len(stream.raw._marks) <= most
    assert all(later[0] - mark[0] >= 1000 for mark, later in itertools.pairwise(stream.raw._marks))


def test_no_seeking_from_the_end():
    with pytest.raises(io.UnsupportedOperation):
        GzipStream(io.BufferedReader(io.BytesIO(PACKED))).seek(0, io.SEEK_END)


def test_natural_order():
    names = ["l10", "l2", "l1", "a10b2", "a10b1", "", "l", "2", "10", "l" + "1" * 5000, "l007", "l\u00b2"]
    ordered = ["", "2", "10", "a10b1", "a10b2", "l", "l1", "l2", "l007", "l10", "l" + "1" * 5000, "l\u00b2"]
    assert sorted(names, key=natural) == ordered


def header(name="n32-l1.tsv", size=0, kind=tarfile.REGTYPE):
    """A header that says whatever it is told, with the right checksum."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf())
    block[124:136] = size.to_bytes(12, "big", signed=True)
    block[124] |= 0x80
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(block)


def pax(text):
    length = len(text) + 4  # of itself too, two digits
    content = f"{length} {text}\n".encode()
    return header("pax", len(content), tarfile.XHDTYPE) + content.ljust(512, b"\0")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        (header(size=1 << 50), f"a member of {1 << 50} bytes"),
        (header(size=1 << 40, kind=tarfile.GNUTYPE_LONGNAME), f"a member of {1 << 40} bytes"),
        (header(size=1 << 20, kind=tarfile.XHDTYPE), f"a member of {1 << 20} bytes"),
        (header(size=512, kind=tarfile.GNUTYPE_SPARSE), "a member with holes"),
        (pax(f"size={1 << 50}") + header(), f"a member of {1 << 50} bytes"),
        (pax("size=-1024") + header(), "a member of -1024 bytes"),
        (pax("GNU.sparse.size=7") + header(), "a member with holes"),
    ],
    ids=["size", "long name", "notes", "holes", "size in notes", "negative size in notes", "holes in notes"],
)
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path, blocks, says, packed):
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(blocks + bytes(2048)) if packed else blocks + bytes(2048))
    with pytest.raises(InputError, match=rf"a\.tar: this is no sound tar archive \({says}\)$"):
        list(TarArchive(path).members())


def test_an_archive_that_unpacks_to_far_more_than_it_is_ends_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(safe_open, "SMALL", 1 << 20)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(header(size=3 << 20) + bytes(4 << 20)))
    for content in (header(size=3 << 20), header()):
        path.write_bytes(gzip.compress(content + bytes(4 << 20)))
        with pytest.raises(InputError, match=r"no sound tar archive \(more than 1,\d+,\d+ bytes, too much to be"):
            list(TarArchive(path).members())


@pytest.mark.parametrize("second", [False, True])
def test_a_member_of_negative_size_ends_the_reading(tmp_path, second):
    """The size -512 in base 256; going by it, the next member would be this one again."""
    path, name = tmp_path / "a.tar", tarfile.TarInfo("n32-l1.tsv")
    header = bytearray(name.tobuf())
    header[124:136] = (-512).to_bytes(12, "big", signed=True)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    path.write_bytes((name.tobuf() if second else b"") + header + bytes(1024))
    with pytest.raises(InputError, match=r"a\.tar: this is no sound tar archive \(a member of -512 bytes\)"):
        list(TarArchive(path).members())
