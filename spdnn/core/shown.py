"""Numbers, units and texts in words, and how the objects of the package look in a session."""

import html
import math
import unicodedata
from collections.abc import Sequence

MOST_ACCENTS = 2  # on one letter
MOST_LISTED = 12  # texts that a sentence lists
BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
RATES = ((1e12, "TeraEdges/s"), (1e9, "GigaEdges/s"), (1e6, "MegaEdges/s"), (1.0, "edges/s"))


class WithRepr:
    """An object with a few facts that tell what it is; subclasses have them in `_facts`."""

    def _facts(self) -> dict[str, str]:
        """By the name of each fact, its words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({', '.join(self._facts().values())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{html.escape(name)}</th><td>{html.escape(words)}</td></tr>"
            for name, words in self._facts().items()
        )
        name = html.escape(type(self).__name__.lstrip("_"))
        return f"<table><caption style='text-align: left'>{name}</caption>{rows}</table>"


def unit_of_rate(rate: float) -> tuple[float, str]:
    """(edges per second of a unit, its name): the largest unit of RATES that a rate reaches."""
    return next((unit for unit in RATES if rate >= unit[0]), RATES[-1])


def significant(number: float, digits: int = 4) -> str:
    """`number` with that many significant digits, thousands separated, whole numbers kept whole."""
    if number == 0:
        return "0"
    if isinstance(number, int) or abs(number) >= 10**15:
        return f"{number:,}" if isinstance(number, int) else f"{number:.{digits - 1}e}"
    magnitude = math.floor(math.log10(abs(number)))
    if magnitude < -4:
        return f"{number:.{digits - 1}e}"
    return f"{number:,.{max(0, digits - 1 - magnitude)}f}"


def time(seconds: float) -> str:
    """Seconds in the unit that has one to three digits before the point."""
    scale, unit = (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "µs")
    return f"{significant(seconds / scale, 3)} {unit}"


def published(number: float) -> str:
    """`number` with at most four significant digits and no zeros that may not have been printed."""
    text = significant(number)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def size(count: int | None) -> str:
    """Bytes in binary units."""
    if count is None:
        return "unknown"
    power = min((max(count, 1).bit_length() - 1) // 10, len(BINARY_UNITS) - 1)
    return f"{count / 1024**power:.{1 if power else 0}f} {BINARY_UNITS[power]}"


def plural(count: int, singular: str, many: str | None = None) -> str:
    """`count` with its noun."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def listed(texts: Sequence[str], most: int = MOST_LISTED, between: str = ", ") -> str:
    """Texts after one another, and how many more there are."""
    more = len(texts) - most
    return between.join(texts[:most]) + (f"{between}and {more:,} more" if more > 0 else "")


def printable(value: object, longest: int = 200) -> str:
    """A text of unknown origin on one line, without control characters and without piles of accents."""
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    text = text if text.isascii() else _limit_accents(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _limit_accents(text: str) -> str:
    """The text with two accents on a letter at most: more would be written over the lines above it."""
    signs, accents = [], 0
    for sign in text:
        accents = accents + 1 if unicodedata.combining(sign) else 0
        if accents <= MOST_ACCENTS:
            signs.append(sign)
    return "".join(signs)
