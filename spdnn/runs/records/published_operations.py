"""Published results of sparse operations for deep learning: the table `config/ops-baselines.csv`, read and checked."""

from dataclasses import dataclass
from pathlib import Path

from spdnn.core import config_tables
from spdnn.core.errors import InputError
from spdnn.core.safe_open import existing
from spdnn.core.validation import quote

COLUMNS = ("operation", "network", "quantity", "value", "printed", "hardware", "against", "source")
QUANTITIES = ("speed-up", "percent of peak", "memory ratio")
OPTIONAL = ("network",)


@dataclass(frozen=True)
class OperationBaseline:
    """One published figure.

    Attributes:
        operation: as records name it, or several joined by commas.
        network: empty where the figure is over several.
        quantity: one of QUANTITIES; `value` is in its unit (a ratio, or percent).
        printed: what the source has, of which `value` is the ratio where it is one of two figures.
        against: what it is a ratio to.
        source: the publication, with section or table.
    """

    operation: str
    network: str
    quantity: str
    value: float
    printed: str
    hardware: str
    against: str
    source: str


def read_operation_baselines(path: str | Path | None = None) -> list[OperationBaseline]:
    """The rows of the table at `path`; by default, of `ops-baselines.csv`.

    Raises:
        InputError: no such file, other columns, an empty cell, a quantity or value that is none.
        Unavailable: the default table is absent.
    """
    path = config_tables.table("ops-baselines.csv") if path is None else existing(path, "table of published results")
    return [_row(cell, where) for cell, where in config_tables.rows(path, COLUMNS)]


def _row(cell: dict[str, str], where: str) -> OperationBaseline:
    config_tables.check_filled(cell, (name for name in COLUMNS if name not in OPTIONAL), where)
    if cell["quantity"] not in QUANTITIES:
        raise InputError(f"{where}: quantity {quote(cell['quantity'])} must be one of: {'; '.join(QUANTITIES)}")
    return OperationBaseline(**{**cell, "value": config_tables.positive(cell["value"], "value", where)})
