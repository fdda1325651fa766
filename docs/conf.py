"""The documentation site (`make docs`): Sphinx reads these pages as they are, from the root of the checkout.

The site's contents are the links of each index page, in order.
"""

import os
import re
from pathlib import Path

from docutils import nodes
from sphinx.util.nodes import make_refnode

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
# The wide tables of the results have the width of the headings' list too.
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
html_theme_options["secondary_sidebar_items"] = {"**": ["page-toc"], "docs/results": []}
html_sidebars = {"**": ["contents.html"]}
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
templates_path, html_static_path, html_css_files = ["site"], ["site/static"], ["site.css"]
default_role = "code"  # of `names` in docstrings
highlight_language = "text"  # of blocks that name none: what a terminal shows


def contents(app, page: str, source: list[str]) -> None:
    """Add to each index page the contents that its links make: pages of its folder, or the index of a folder below."""
    if not page.endswith("index"):
        return
    folder = os.path.dirname(page)
    linked = [os.path.normpath(f"{folder}/{link}").removesuffix(".md") for link in LINK.findall(source[0])]
    if page == root_doc:
        beside = [page.removesuffix(".md") for page in BESIDE if page.count("/") == 0]
        own = [page for page in linked if page.endswith("/index") or os.path.dirname(page) == folder]
        entries = [*beside[:1], *own, *beside[1:]]
    else:
        entries = [page for page in linked if os.path.dirname(page) == folder]
        entries += [page for page in linked if page.endswith("/README")]
    listed = "\n".join("Overview </README>" if entry == "README" else f"/{entry}" for entry in dict.fromkeys(entries))
    source[0] += f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def links(app, tree: nodes.document, page: str) -> None:
    """A public name in a sentence or a table leads to its entry on the page of the Python API."""
    known = app.env.get_domain("py").objects
    for node in list(tree.findall(nodes.literal)):
        if (entry := known.get(node.astext())) and not isinstance(node.parent, nodes.reference):
            link = make_refnode(app.builder, page, entry.docname, entry.node_id, node.deepcopy())
            node.parent.replace(node, link)


def setup(app) -> None:
    app.connect("source-read", contents)
    app.connect("doctree-resolved", links)
