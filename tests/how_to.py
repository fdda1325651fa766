"""The code of a page of the documentation, so that a test can follow what the page says."""

import re
from pathlib import Path

HOW_TO = Path(__file__).resolve().parents[1] / "docs" / "how-to"


def python_blocks(page: str) -> list[str]:
    """The Python blocks of docs/how-to/`page`, in order."""
    return re.findall(r"^```python\n(.*?)^```", (HOW_TO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
