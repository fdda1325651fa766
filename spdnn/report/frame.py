"""Records as a pandas frame: load_records of the Python API."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from spdnn.core.errors import Unavailable, install
from spdnn.runs.records.cases import record_files

if TYPE_CHECKING:
    import pandas


def load_records(*paths: str | Path) -> "pandas.DataFrame":
    """A pandas frame of run and operation records, a row each; its columns name their units.

    Args:
        paths: record files (.json, .jsonl), folders of them, or a workflow's results/; by default results/.

    Raises:
        InputError: nothing is there, or a record that is not sound. Unavailable: pandas is absent.

    Example:
        >>> import spdnn
        >>> frame = spdnn.load_records("results/measured/two-cores-zen4/twelve.jsonl")
        >>> len(frame)
        12
    """
    try:
        import pandas
    except ImportError as error:
        raise Unavailable(f"load_records needs pandas: {install('report')}") from error
    from spdnn.report.provenance.records import records_table
    from spdnn.report.rendering import contents

    everything = contents([record_files(path) for path in paths or ("results",)])
    return pandas.read_csv(io.StringIO(records_table(everything.runs, everything.operations)))
