"""Gzip read at any place: whatever is asked for, in whatever order, is what lies there."""

import gzip
import io
import itertools
import random
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.common.errors import InputError
from spdnn.formats.archive import Archive, Inflated, natural

CONTENT = random.Random(3).randbytes(300_000) + b"spdnn" * 100_000
PACKED = gzip.compress(CONTENT[:500_000], 1) + gzip.compress(CONTENT[500_000:])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CONTENT) + 10), st.integers(0, 9999)), max_size=12), st.integers(2, 9))
def test_reads_at_any_place(reads, most):
    raw = io.BufferedReader(io.BytesIO(PACKED))
    stream = io.BufferedReader(Inflated(raw, spacing=1000, most=most), 512)
    for place, size in reads:
        stream.seek(place)
        assert stream.read(size) == CONTENT[place : place + size]
    assert len(stream.raw._marks) <= most
    assert all(later[0] - mark[0] >= 1000 for mark, later in itertools.pairwise(stream.raw._marks))


def test_no_seeking_from_the_end():
    with pytest.raises(io.UnsupportedOperation):
        Inflated(io.BufferedReader(io.BytesIO(PACKED))).seek(0, io.SEEK_END)


def test_natural_order():
    names = ["l10", "l2", "l1", "a10b2", "a10b1", "", "l", "2", "10"]
    assert sorted(names, key=natural) == ["", "2", "10", "a10b1", "a10b2", "l", "l1", "l2", "l10"]


@pytest.mark.parametrize("second", [False, True])
def test_a_member_of_negative_size_ends_the_reading(tmp_path, second):
    """The size -512 in base 256; going by it, the next member would be this one again."""
    path, name = tmp_path / "a.tar", tarfile.TarInfo("n32-l1.tsv")
    header = bytearray(name.tobuf())
    header[124:136] = (-512).to_bytes(12, "big", signed=True)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    path.write_bytes((name.tobuf() if second else b"") + header + bytes(1024))
    with pytest.raises(InputError, match=r"a\.tar: this is no sound tar archive \(a member of -512 bytes\)"):
        list(Archive(path).members())
