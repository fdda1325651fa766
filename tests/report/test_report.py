"""The page as a whole: records that are not sound are refused, and what is not shown says why."""

import re

import pytest
from records import BASELINES, collected, made_record, made_verdict, shown

from spdnn.core.errors import InputError
from spdnn.core.table import plain
from spdnn.report import page
from spdnn.report import rendering as report
from spdnn.report.sections import SECTIONS


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": "spdnn-record"}', "NaN", "\x00", "null"])
def test_broken_record_is_one_sentence(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(str(path))) as caught:
        report.render([report.RecordFolder([path])], tmp_path / "report.html", BASELINES)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_no_section_has_anything_to_show_of_nothing():
    assert page.sections(collected()) == []
    failed = collected([made_record("broken")], verdicts=[("broken", made_verdict(passed=False))])
    assert [section.name for section in page.sections(failed)] == ["cases", "provenance"]


def test_sections_that_are_absent_say_how_to_get_them():
    commands = {
        "config/strong.yaml": "Scaling", "config/schedules.yaml": "Schedules", "config/peers.yaml": "Other libraries",
        "config/ops.yaml": "Sparse products", "spdnn challenge": "The distance to the machine",
    }  # fmt: skip
    sentences = [plain(module.ABSENT) for module in SECTIONS if hasattr(module, "ABSENT")]
    text = shown([made_record()]).text
    assert [sentence for sentence in filter(None, sentences) if text.count(sentence) != 1] == []
    for command, subject in commands.items():
        (sentence,) = (sentence for sentence in sentences if command in sentence)
        assert sentence.startswith(subject)
