"""The figures and tables of a page as files, for papers and for `snakemake --report`: SVG, data and caption."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.files import replacing_folder
from spdnn.report.common.drawing import Drawing

SUFFIXES = (".csv", ".rst", ".svg")
STAMP = ".snakemake_timestamp"  # which Snakemake leaves in a folder that is the output of a rule
WHITE = '<rect width="100%" height="100%" fill="#ffffff"/>'
NAMESPACES = {"xmlns": "http://www.w3.org/2000/svg", "xmlns:xlink": "http://www.w3.org/1999/xlink"}


def write_figures(drawings: Iterable[Drawing], folder: str | Path) -> None:
    """Write each figure to `folder`/CATEGORY/NAME: .svg, its data as .csv, its title and caption as .rst.

    A table is a figure without an SVG.

    The folder is replaced whole, so nothing of an earlier page remains in it.

    Args:
        folder: a new one, or one that holds such figures and nothing else.

    Raises:
        InputError: the folder holds something else, or cannot be where it is asked for.
        SpdnnError: it cannot be written.
    """
    check_figures(folder)
    with replacing_folder(folder) as whole:
        for drawing in drawings:
            part = whole / drawing.category
            part.mkdir(exist_ok=True)
            if drawing.svg:
                (part / f"{drawing.name}.svg").write_text(standalone(drawing.svg), "utf-8")
            (part / f"{drawing.name}.csv").write_text(drawing.csv, "utf-8", "backslashreplace")
            (part / f"{drawing.name}.rst").write_text(caption(drawing.title, drawing.caption), "utf-8")


def remove_figures(folder: str | Path) -> None:
    """Remove a folder of figures, if there is one. Raises InputError as `write_figures` does, and SpdnnError."""
    if not check_figures(folder).exists():
        return
    try:
        shutil.rmtree(os.path.realpath(folder))
    except OSError as error:
        raise SpdnnError(f"{folder}: {error.strerror or error}, so its figures were not removed") from error


def check_figures(folder: str | Path) -> Path:
    """The folder itself unless it holds anything that `write_figures` does not leave; InputError names that.

    A figure is recognised by its files together.
    """
    top = Path(folder)
    if top.exists() and not top.is_dir():
        raise InputError(f"{top} is not a folder; figures are written into one of their own")
    for part in sorted(top.iterdir()) if top.is_dir() else ():
        inside = sorted(part.iterdir()) if part.is_dir() and not part.is_symlink() else []
        whole = {
            path.stem for path in inside if all((part / f"{path.stem}{suffix}").is_file() for suffix in SUFFIXES[:2])
        }
        other = [path for path in inside if path.suffix not in SUFFIXES or path.stem not in whole]
        if other or not (inside or part.name == STAMP):
            odd = (other or [part])[0].relative_to(top)
            raise InputError(f"{top}: {odd} is no figure of a report, and would be removed; name a folder of its own")
    return top


def standalone(svg: str) -> str:
    """An <svg> element of a page as a file of its own: with its namespaces, and white behind it in every viewer."""
    start = re.match(r"<svg\b[^>]*>", svg)[0]
    absent = [f'{name}="{space}"' for name, space in NAMESPACES.items() if f" {name}=" not in start]
    tag = " ".join(["<svg", *absent, start.removeprefix("<svg").strip()])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tag}\n{WHITE}{svg[len(start) :]}\n'


def caption(title: str, text: str) -> str:
    """Title and caption as a paragraph of reStructuredText, whatever marks they hold."""
    bold, plain = (re.sub(r"([\\*`|_]|:(?=:))", r"\\\1", " ".join(words.split())) for words in (title, text))
    return f"**{bold}.** {plain}\n"
