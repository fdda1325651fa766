"""The contract of an exact reduction: work that a network's own data lets one leave out without changing results.

Engines offer reductions; `spdnn.engines.reductions.registry` lists them.
"""

import abc

from spdnn.core.network import Network


class Reduction(abc.ABC):
    """One exact reduction. A reduction is searched for, never assumed, and an engine uses those that it offers.

    What a reduction does to the network alone is `prepare`. What it does to features is the engine's part, which asks
    this object how to note it.

    Attributes:
        name: in options, configurations and records.
        label: for readers, a noun.
        meaning: for readers, a sentence or two.
        left_out: for readers, the work that is not done; it follows "left out: ".
    """

    name: str
    label: str
    meaning: str
    left_out: str

    def prepare(self, network: Network, memory: float) -> tuple[Network, dict | None]:
        """The network without the work that this reduction leaves out, and a note for the record (fit for JSON).

        Args:
            memory: bytes that layers it makes may take.

        Returns:
            the network itself where nothing changes; None where there is nothing to note before a run.
        """
        return network, None

    def first(self, note: dict, source: Network, network: Network, layers: int) -> dict:
        """The note of `prepare`, of `layers` layers, for the first of them alone, of the original network (`source`)
        and the prepared one."""
        return note

    def session_note(self, note: dict, depth: int) -> dict | None:
        """What follows from the note of `prepare` for a run of a network of `depth` layers; None: nothing."""
        return None
