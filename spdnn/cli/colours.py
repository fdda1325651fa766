"""Colours on a terminal; NO_COLOR (no-color.org) and a dumb terminal have none."""

import os
import sys

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def has_colours() -> bool:
    """Whether standard output shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colour_text(text: str, colour: str) -> str:
    """The text in a colour, where colours are shown."""
    return f"{colour}{text}{PLAIN}" if has_colours() else text
