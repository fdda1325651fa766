"""Peers in the same run: other libraries and our kernels on the same problem, timed alternately and each verified.

Two comparisons. One fused layer on dense features, every program's layouts made outside the clock; and a whole network,
every program through the contract of the engines. What is timed alternately, again and again, is slowed alike by
whatever else the machine does, so pairs of samples give ratios that can be trusted where single times cannot. An output
is verified before its program is timed, and every timed output must equal the verified one to the bit.
"""

from spdnn.bench.common import ComparisonSettings, find_libraries, rows, write_records
from spdnn.bench.layer import compare_layers
from spdnn.bench.networks import compare_networks
from spdnn.core.features import Inputs
from spdnn.core.request import RunRequest
from spdnn.runs.load import load_network
from spdnn.runs.records.run_record import RunRecord

__all__ = [
    "ComparisonSettings",
    "compare",
    "compare_layers",
    "compare_networks",
    "find_libraries",
    "rows",
    "write_records",
]


def compare(settings: dict, inputs: Inputs | None, command: str) -> list[RunRecord]:
    """The records that the key `peers` of a configuration asks for.

    Args:
        settings: widths, count, seconds, network, libraries, threads, as the configuration's schema has them.
        inputs: of the network; its count is applied here. None without a network.
        command: that makes the records again.

    Raises:
        InputError, Unavailable: see installed, compare_layers and compare_networks.
    """
    names = settings["libraries"]
    libraries, _ = find_libraries("all" if names == "auto" else names)
    comparison = ComparisonSettings(settings["threads"], libraries, settings["seconds"], command)
    records = compare_layers(settings["widths"], settings["count"], comparison)
    if whole := settings["network"]:
        request = RunRequest.of(
            {key: value for key, value in whole.items() if value is not None} | {"threads": settings["threads"]}
        )
        inputs = inputs if request.count is None else inputs.first(request.count)
        records += compare_networks(request, load_network(request), inputs, comparison)[0]
    return records
