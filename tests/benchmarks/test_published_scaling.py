"""The cost model beside published scaling: how far off it is."""

import json
import statistics

import published_scaling
import pytest

from spdnn.core import challenge


@pytest.fixture(scope="module")
def scaling():
    return published_scaling.at_scale()


def test_published_scaling_is_predicted_from_one_gpu_and_one_constant(scaling):
    errors = scaling.errors()
    assert len(scaling.rows) == 120
    assert len(errors) == 120 - 12 - 1
    assert statistics.median(errors) < 0.12
    assert errors[-1] < 0.31
    wide = [abs(row.error) for row in scaling.rows if row.neurons == 65536 and not row.calibration]
    assert statistics.median(wide) < 0.08
    assert max(wide) < 0.13


def test_what_the_published_scaling_ends_in(scaling):
    """Beyond 192 GPUs next to nothing is gained, as published."""
    by = {(row.neurons, row.layers, row.devices): row for row in scaling.rows}
    for neurons in challenge.WIDTHS:
        for attribute in ("predicted_seconds", "published_seconds"):
            few, many = (getattr(by[neurons, 1920, devices], attribute) for devices in (192, 768))
            assert many > 0.85 * few
    assert 12e9 < scaling.copy_bytes_per_second < 25e9
    assert 5e-5 < scaling.seconds_per_layer < 1e-4


def test_a_second_constant_explains_the_narrow_networks():
    errors = published_scaling.at_scale(both=True).errors()
    assert len(errors) == 120 - 12 - 2
    assert statistics.median(errors) < 0.055
    assert errors[-1] < 0.21


def test_the_comparison_is_printed_and_written(tmp_path, capsys):
    published_scaling.main(["--json", str(tmp_path / "s.json")])
    printed = capsys.readouterr().out
    assert printed.count("published") == 12
    assert "107 figures predicted" in printed
    assert "106 figures predicted" in printed
    assert len(json.loads((tmp_path / "s.json").read_text())["one_constant"]["rows"]) == 120


def test_what_is_committed_is_what_it_prints(assert_committed):
    assert_committed(published_scaling, "scaling")
