"""Strong scaling on H100 as it is predicted from records of one."""

import json
from itertools import groupby

import predicted_scaling
import pytest


@pytest.fixture(scope="module")
def rows():
    return predicted_scaling.scaling()


def test_one_device_is_what_was_measured(rows):
    single = [row for row in rows if row.devices == 1]
    assert len(single) == 12
    for row in single:
        assert row.seconds == pytest.approx(row.measured_seconds, rel=0.05)
        assert row.efficiency == 1


def test_more_devices_are_faster_until_a_layer_takes_its_latency(rows):
    for (neurons, layers), several in groupby(rows, key=lambda row: (row.neurons, row.layers)):
        seconds = [row.seconds for row in several]
        assert all(few > 0.99 * many for few, many in zip(seconds, seconds[1:], strict=False))
        # No layer takes less than one of one row, and a wide network has more to share out.
        assert 3e-6 * layers < seconds[-1] < seconds[0] / (1.5 if neurons == 1024 else 5)


def test_a_measured_point_replaces_a_prediction(rows, capsys):
    predicted_scaling._show([predicted_scaling.replace(row, measured_seconds=0.125) for row in rows])
    assert capsys.readouterr().out.count("0.125*") == len(rows)


def test_what_is_committed_is_what_it_prints(assert_committed, tmp_path):
    assert_committed(predicted_scaling, "predicted_scaling", "one-h100")
    predicted_scaling.main(["--json", str(tmp_path / "s.json"), "--svg", str(tmp_path / "s.svg")])
    assert len(json.loads((tmp_path / "s.json").read_text())) == 12 * len(predicted_scaling.DEVICES)
    assert "<svg" in (tmp_path / "s.svg").read_text()
