"""Checks the built site: every link between its pages leads somewhere, and nothing is loaded from elsewhere.

python docs/check.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}


class _Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        self.links += [(tag, key, given[key]) for key in ("href", "src", "srcset") if given.get(key)]


def faults(folder: Path) -> list[str]:
    """A sentence for each link of the pages in `folder` that leads nowhere, and for what they load from elsewhere."""
    paths = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]  # the theme's templates
    pages = {path.resolve(): _Page(path.read_text("utf-8")) for path in paths}
    found = [] if pages else [f"{folder}: no page there"]
    for path, page in pages.items():
        for tag, key, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if (tag, key) in LOADED and parts.scheme != "data":
                    found.append(f"{path}: loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            name = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{path}: {link} is not there")
            elif name and target in pages and name not in pages[target].names:
                found.append(f"{path}: {link}: the page has no such place")
    return found


if __name__ == "__main__":
    messages = faults(Path(sys.argv[1]))
    print(*messages[:50], sep="\n", file=sys.stderr)
    sys.exit(f"{len(messages)} faults" if messages else 0)
