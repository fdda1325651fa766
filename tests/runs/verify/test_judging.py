"""The truth that a text names, and how much work the oracle may do."""

from pathlib import Path

import pytest
import yaml
from refusals import refuses

from spdnn.runs.verify import judging

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("width", ["", "x", "-1024", "\u00b2", "9" * 5000])
def test_a_width_is_a_whole_number(width):
    refuses(r"^truth 'official:.*: it must be official:N with N one of", judging.load_truth, f"official:{width}", 1)


def test_the_command_and_the_workflow_compare_as_many_inputs():
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    assert config["oracle_edges"] == judging.ORACLE_EDGES
