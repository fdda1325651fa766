"""How the objects of the package look in a session: one short line, and a table in a notebook."""

import html
import re

RATES = ((1e12, "TeraEdges/s"), (1e9, "GigaEdges/s"), (1e6, "MegaEdges/s"), (1.0, "edges/s"))


class WithRepr:
    """An object with a few facts that tell what it is; subclasses have them in `_facts`."""

    def _facts(self) -> dict[str, str]:
        """By the name of each fact, its words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({', '.join(self._facts().values())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{html.escape(name)}</th><td>{html.escape(words)}</td></tr>"
            for name, words in self._facts().items()
        )
        name = html.escape(type(self).__name__.lstrip("_"))
        return f"<table><caption style='text-align: left'>{name}</caption>{rows}</table>"


def with_unit(number: int, what: str) -> str:
    """`number` with its unit, which `what` names in the plural."""
    return f"{number:,} {re.sub('(?<=ss|sh|ch)es$|s$', '', what) if number == 1 else what}"


def unit_of_rate(rate: float) -> tuple[float, str]:
    """(edges per second of a unit, its name): the largest unit of RATES that a rate reaches."""
    return next((unit for unit in RATES if rate >= unit[0]), RATES[-1])
