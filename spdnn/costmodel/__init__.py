"""The cost model, the only one of the project: from measured costs to the time of any number of ranks."""

from spdnn.costmodel.calibration import UNREADABLE, check, from_record, known_shares, reading_notes, run_seconds
from spdnn.costmodel.costs import FREE, Device, Messages, Work
from spdnn.costmodel.prediction import PARTITIONS, Prediction, enough, predict

__all__ = [
    "FREE",
    "PARTITIONS",
    "UNREADABLE",
    "Device",
    "Messages",
    "Prediction",
    "Work",
    "check",
    "enough",
    "from_record",
    "known_shares",
    "predict",
    "reading_notes",
    "run_seconds",
]
