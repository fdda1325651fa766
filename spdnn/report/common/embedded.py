"""Texts inside the links of the page, so that it needs no other file.

A link holds its text as a data: address, plain where it is short and gzip where it is long. Either works without
JavaScript.
"""

import base64
import gzip

PLAIN_BYTES = 60_000  # longer texts are compressed


def link(name: str, text: str, kind: str) -> dict[str, str]:
    """An address that holds `text`, and the name of the file that it becomes.

    Args:
        kind: its media type, such as text/csv.
    """
    content = text.encode("utf-8", "backslashreplace")  # of a name in another encoding; JSON reads that as it was
    if len(content) > PLAIN_BYTES:
        name, kind, content = f"{name}.gz", "application/gzip", gzip.compress(content, 9, mtime=0)
    else:
        kind = f"{kind};charset=utf-8"
    return {"name": name, "href": f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"}
