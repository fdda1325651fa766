"""No text that is shown or kept has a secret of an address."""

import json

import pytest
from refusals import misused, refused

from spdnn.core.addresses import hide_secrets
from spdnn.core.errors import MemoryTooSmall, SpdnnError, fail
from spdnn.core.safe_open import brief
from spdnn.core.validation import shorten
from spdnn.runs.records.cases import write_cases


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://jane:s3cret@host/m", "http://jane:****@host/m"),
        ("https://s3cret@host", "https://****@host"),
        ("ftp://jane:s3cret@[::1]:21/m", "ftp://jane:****@[::1]:21/m"),
        ("mirror=HTTP://jane:s3%40cret%2F@host:80/m", "mirror=HTTP://jane:****@host:80/m"),
        ("""http://jane:s3@'"s3cret"@host/m""", "http://jane:****@host/m"),
        ("http://jane:s3/s3c?r#s3cret@host/m", "http://jane:****@host/m"),  # not encoded, so it is no right address
        ("http:/jane:s3cret@host/m: no such file", "http:/jane:****@host/m: no such file"),  # as a Path has it
        ("tried https://host/m?sig=s3cret%3D&a=1/x: the", "tried https://host/m?****: the"),
        ("('https://host/m?s3cret') and https://a:s3cret@b", "('https://host/m?****') and https://a:****@b"),
        *((text, text) for text in (
            "http://host:8080/@v1/x, http://[::1]:80/@v1", "https://host/what? write to x@y.z", "file:///a/b", "a:/b@c",
            "see http://host/m and x@y.z", "/data/a@b: there is no such file",
        )),
    ],
)  # fmt: skip
def test_secrets_of_addresses_are_hidden_and_nothing_else(text, shown):
    assert hide_secrets(text) == shown
    assert hide_secrets(shown) == shown
    for told in (str(SpdnnError(text)), str(MemoryTooSmall(text, 1)), brief(ValueError(text)), shorten(text, 99)):
        assert told == shown


def test_what_is_cut_is_cut_behind_a_secret(capsys):
    address = f"http://jane:{'s3cret' * 50}@host/m"
    for cut in (shorten(address), brief(ValueError(address)), refused(capsys, "network", "info", address)):
        assert "s3cret" not in cut
    fail(address)
    assert "s3cret" not in capsys.readouterr().err
    assert "http://jane:****@host" in misused(capsys, "info", address)


def test_the_command_of_a_workflow_is_kept_without_secrets(tmp_path):
    words = ["snakemake", "--config", "mirror=https://s3cret@host/m?sig=s3cret", "count=1"]
    write_cases(tmp_path / "cases.json", ["a"], [], words)
    kept = json.loads((tmp_path / "cases.json").read_text())["command"]
    assert kept == "snakemake --config 'mirror=https://****@host/m?****' count=1"
