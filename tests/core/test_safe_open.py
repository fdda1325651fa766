"""How files are opened: what is no file, too long, or packed too well is refused before it is read."""

import gzip
import os
import traceback

import pytest
from refusals import refuses

from spdnn.core import safe_open
from spdnn.core.errors import InputError

BOMB = gzip.compress(bytes(safe_open.SMALL_UNPACKED + 1))


def test_what_is_no_plain_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (safe_open.whole, lambda path: safe_open.text(path, "table")):
        refuses("pipe: .*not a plain file", read, tmp_path / "pipe")
        refuses("this is a folder", read, tmp_path)
        refuses("there is no such", read, tmp_path / "none")


def test_more_bytes_than_are_allowed(tmp_path):
    path = tmp_path / "a"
    with open(path, "wb") as stream:
        stream.truncate(1 << 40)  # without taking any room
    refuses("a: it has 1,099,511,627,776 bytes; at most 17,179,869,184 are read", safe_open.whole, path)
    refuses("1,099,511,627,776 bytes, more than 1,073,741,824", safe_open.text, path, "table")
    path.write_bytes(b"12345")
    assert safe_open.whole(path, 5) == b"12345"
    refuses("a: it has 5 bytes; at most 4 are read", safe_open.whole, path, 4)


def test_gzip_that_holds_far_more_than_it_is(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(BOMB)
    said = "it holds more than 33,554,432 bytes, too much to be sound"
    refuses(f"a.gz: {said}", safe_open.whole, path)
    refuses(f"member: {said}", safe_open.unpack, BOMB, "member")
    with safe_open.open_file(path) as stream:
        assert stream.read(9) == bytes(9)
    path.write_bytes(gzip.compress(b"12345"))
    assert safe_open.whole(path, 5) == b"12345"
    refuses("a.gz: it holds more than 4 bytes", safe_open.whole, path, 4)


def test_text_has_no_byte_order_mark(tmp_path):
    path = tmp_path / "a.txt"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_text(" é\n\n2", encoding=encoding)
        assert safe_open.text(path, "list") == " é\n\n2"
        assert list(safe_open.lines(path)) == [(1, "é"), (2, ""), (3, "2")]
    path.write_bytes(b"\x93NUMPY\x01\x00")
    refuses(r"a\.txt: it is not a list in JSON \(it is no text: byte 0x93 at 0\)", safe_open.text, path, "list")
    refuses(r"a\.txt: this is no text file", list, safe_open.lines(path))


def test_what_a_library_raises_is_one_short_sentence():
    with pytest.raises(InputError) as caught, safe_open.sound("a.npz: damaged"):
        raise SyntaxError("\x00\x1b[31m" + "x" * 999 + "\nmore")
    assert str(caught.value).startswith("a.npz: damaged (??[31mxxx")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_frames_of_an_error_are_cleared_and_those_of_what_the_caller_handles_are_not():
    @safe_open.releasing()
    def refuse():
        name = "inner"
        raise InputError(name)

    def fail():
        name = "outer"
        raise KeyError(name)

    with pytest.raises(InputError) as refused:
        try:
            fail()
        except KeyError:
            refuse()
    names = [
        frame.f_locals.get("name")
        for error in (refused.value, refused.value.__context__)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name in ("refuse", "fail")
    ]
    assert names == [None, "outer"]
