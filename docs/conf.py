"""The documentation site (`make docs`): Sphinx reads these pages as they are, from the root of the checkout.

What hangs together is told by the pages themselves: the site's contents are the links of each index page, in order.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "config/README.md", "envs/README.md")
BESIDE += ("results/README.md", "workflow/profiles/README.md")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+\.md)\)")

project = "spdnn"
author = "The spdnn developers"
release = version = re.search(r'__version__ = "(.+)"', (ROOT / "spdnn/__init__.py").read_text())[1]
root_doc = "docs/index"
include_patterns = ["docs/**", *BESIDE]
exclude_patterns = ["docs/conf.py", ".*", "build", "results/[!R]*", "spdnn", "tests", "benchmarks"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True
# Pages of files beside docs/ may begin with any heading; attributes that several classes have are no links.
suppress_warnings = ["myst.header", "ref.python"]
html_theme = "pydata_sphinx_theme"
html_title = f"spdnn {release}"
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
templates_path, html_static_path = [], []


def contents(app, page: str, source: list[str]) -> None:
    """Add to each index page the contents that its links make: pages of its folder, or the index of a folder below."""
    if not page.endswith("index"):
        return
    folder = os.path.dirname(page)
    linked = [os.path.normpath(f"{folder}/{link}").removesuffix(".md") for link in LINK.findall(source[0])]
    if page == root_doc:
        entries = [one for one in linked if one.endswith("/index") or one == "docs/results"]
        entries += [one.removesuffix(".md") for one in BESIDE if one.count("/") == 0]
    else:
        entries = [one for one in linked if os.path.dirname(one) == folder]
        entries += [one for one in linked if one.endswith("/README")]
    listed = "\n".join(f"/{one}" for one in dict.fromkeys(entries))
    source[0] += f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def setup(app) -> None:
    app.connect("source-read", contents)
