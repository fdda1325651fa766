"""Addresses in texts, without the secrets that they may hold."""

import re

# The second form of a user and a password: those of an address that is wrong, for the password has a / ? or #.
ADDRESS = r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]+:/+)"  # of one slash: a Path has lost the other
USER = re.compile(ADDRESS + r"(?:([^\s/?#:@]*:)?[^\s/?#]*|([^\s/?#:@\[]*:)(?!\d+[/?#])\S*)@", re.IGNORECASE)
QUERY = re.compile(ADDRESS + r"""([^\s?]*\?)(?!\s)\S+?(?=['")\]}>:;,.]*(?:\s|$))""", re.IGNORECASE)


def hide_secrets(text: str) -> str:
    """The text with **** in place of every password, user without a password (a token) and query of its addresses.

    Everything that shows or keeps an address, or a text that may have one, takes it from here, before it is cut.
    """
    if ":/" not in text:
        return text
    text = USER.sub(lambda found: f"{found[1]}{found[2] or found[3] or ''}****@", text)
    return QUERY.sub(r"\1\2****", text)
