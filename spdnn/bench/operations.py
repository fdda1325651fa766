"""The comparison of operations and models that a configuration asks for: products first, then whole models."""

from spdnn.bench.common import ComparisonSettings
from spdnn.bench.models import check as check_models
from spdnn.bench.models import compare_model
from spdnn.bench.products import compare_products, libraries_here
from spdnn.ops.problems import problems
from spdnn.runs.records.operation_record import OperationRecord


def compare(settings: dict, command: str, archive: str | None = None) -> list[OperationRecord]:
    """The records that the key `ops` of a configuration asks for.

    Args:
        settings: sets, networks, phases, operations, libraries, seconds, threads, seed, models, as the configuration's
            schema has them.
        archive: of DLMC, or None.

    Raises:
        InputError, Unavailable: see libraries_here, problems, compare_products.
    """
    check_models(settings["models"])
    libraries, _ = libraries_here(settings["libraries"])
    chosen = problems(settings["sets"], settings["phases"], settings["networks"], settings["seed"])
    comparison = ComparisonSettings(settings["threads"], libraries, settings["seconds"], command)
    groups = compare_products(chosen, settings["operations"], comparison, archive)
    records = [record for group in groups for record in group]
    for name in settings["models"]:
        records += compare_model(name, comparison)
    return records
