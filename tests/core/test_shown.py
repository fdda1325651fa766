"""Numbers, sizes and texts as they are shown."""

import pytest

from spdnn.core.shown import listed, plural, printable, significant, size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.0, "0"), (1812, "1,812"), (0.153, "0.1530"), (26.4, "26.40"), (351.25, "351.2"), (2143.67, "2,144"),
     (1.25e-6, "1.250e-06"), (1e20, "1.000e+20")],
)  # fmt: skip
def test_significant(number, text):
    assert significant(number) == text


def test_sizes_plurals_and_what_is_not_printable():
    assert [size(None), size(1), size(3 << 30)] == ["unknown", "1 B", "3.0 GiB"]
    assert [plural(1, "case"), plural(1200, "case")] == ["1 case", "1,200 cases"]
    assert printable("a\x00b\n" + "c" * 300, 10) == "a b ccccc…"
    assert printable("caf" + "e" + "\u0301" * 40 + " Việt") == "cafe\u0301\u0301 Việt"


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (3, "0, 1, 2"), (4, "0, 1, 2, and 1 more"), (7, "0, 1, 2, and 4 more")]
)
def test_long_lists_end_with_how_many_more(count, text):
    assert listed([str(k) for k in range(count)], 3) == text
