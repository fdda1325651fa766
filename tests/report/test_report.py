"""The page as a whole: what is not shown says why."""

from records import collected, made_record, made_verdict, shown

from spdnn.core.table import plain
from spdnn.report import page
from spdnn.report.sections import modules


def test_no_section_has_anything_to_show_of_nothing():
    assert page.sections(collected()) == []
    failed = collected([made_record("broken")], verdicts=[("broken", made_verdict(passed=False))])
    assert [section.name for section in page.sections(failed)] == ["cases", "provenance"]


def test_sections_that_are_absent_say_how_to_get_them():
    commands = {
        "config/strong.yaml": "Scaling", "config/schedules.yaml": "Schedules", "config/peers.yaml": "Other libraries",
        "config/ops.yaml": "Sparse products", "spdnn challenge": "The distance to the machine",
    }  # fmt: skip
    sentences = [plain(module.ABSENT) for module in modules() if hasattr(module, "ABSENT")]
    text = shown([made_record()]).text
    assert [sentence for sentence in filter(None, sentences) if text.count(sentence) != 1] == []
    for command, subject in commands.items():
        (sentence,) = (sentence for sentence in sentences if command in sentence)
        assert sentence.startswith(subject)
