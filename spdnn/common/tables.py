"""Where the tables of `config/` are: beside a checkout's package, or inside an installed one."""

from pathlib import Path

from spdnn.common.errors import Unavailable

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent


def table(name: str) -> Path:
    """The path of the table `name` (data.tsv, baselines.csv, truth/1024.tsv...).

    Raises:
        Unavailable: the package was installed without it.
    """
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "Snakefile").is_file()
    path = (CHECKOUT / "config" if in_checkout else PACKAGE / "tables") / name
    if not path.is_file():
        raise Unavailable(f"the table {name} is not where it should be: {path}")
    return path
