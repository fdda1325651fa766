"""Gzip read at any place: whatever is asked for, in whatever order, is what lies there."""

import gzip
import io
import itertools
import random
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.core import safe_open
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


def members(path):
    return list(TarArchive(path).members())


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
        (header(size=-512), "a member of -512 bytes"),  # after which the next member would be this one again
        (header() + header(size=-512), "a member of -512 bytes"),
        (header(size=1 << 40, kind=tarfile.GNUTYPE_LONGNAME), f"a member of {1 << 40} bytes"),
        (header(size=1 << 20, kind=tarfile.XHDTYPE), f"a member of {1 << 20} bytes"),
        (header(size=512, kind=tarfile.GNUTYPE_SPARSE), "a member with holes"),
        (pax(f"size={1 << 50}") + header(), f"a member of {1 << 50} bytes"),
        (pax("size=-1024") + header(), "a member of -1024 bytes"),
        (pax("GNU.sparse.size=7") + header(), "a member with holes"),
    ],
    ids=[
        "size", "negative size", "negative size of the second", "long name", "notes", "holes", "size in notes",
        "negative size in notes", "holes in notes",
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path, blocks, says, packed):
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(blocks + bytes(2048)) if packed else blocks + bytes(2048))
    refuses(rf"a\.tar: this is no sound tar archive \({says}\)$", members, path)


def test_an_archive_that_unpacks_to_far_more_than_it_is_ends_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(safe_open, "SMALL_UNPACKED", 1 << 20)
    path = tmp_path / "a.tar.gz"
    for content in (header(size=3 << 20), header()):
        path.write_bytes(gzip.compress(content + bytes(4 << 20)))
        refuses(r"no sound tar archive \(more than 1,\d+,\d+ bytes, too much to be", members, path)
