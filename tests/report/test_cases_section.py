"""Cases and verdicts: a failure names its reasons and has no number; what was compared, and with what, is counted."""

import itertools

import pytest
from operation_cases import made_operation
from records import collected, counted, made_record, made_verdict, measured, section_of, table_of, texts, told, typed

from spdnn.report.cases import outcome
from spdnn.report.common.collection import Part, collect
from spdnn.report.common.run_rows import fair
from spdnn.runs.records.verdict import Verdict

FAILED = made_verdict(passed=False)
SAMPLE = {"kind": "oracle", "source": "float64 oracle", "seed": 0}
OFFICIAL = {"kind": "official", "source": "official list", "inputs": 60_000, "checked": 60_000, "seed": None}
GROUPS = "Inputs compared value by value; by category, sums and extremes; not"


def test_a_failed_verdict_takes_the_numbers_of_its_case_away():
    contents = collected([made_record("mine"), made_record("other")], verdicts=[("mine", FAILED)])
    assert [record.case for record in contents.records] == ["other"]
    assert outcome(contents)[:3] == (
        "2 cases run, and 1 failed verification: mine.", "1 of 2 cases failed", "failed"
    )  # fmt: skip
    section = section_of("cases", contents)
    assert told(section).startswith("1 passed, 1 failed. A case passes when ")
    assert "mine: a record exists, but another run of this case failed verification" in told(section)
    table = table_of(section, "Cases")
    assert table.opened
    failed, passed = texts(table)
    assert (failed["Case"], failed["Result"], failed["Record"]) == ("mine", "failed", "none")
    assert (failed["Categories, of the inputs compared"], failed["Expected"]) == ("1,812", "1,819")
    assert failed["Values"] == f"every value is 32 ({FAILED['reasons'][0]})"
    assert (passed["Case"], passed["Result"], passed["Values"]) == ("other", "passed", "every value is 32")
    assert passed["Record"] == f"lacks: {'; '.join(contents.records[0].missing_evidence())}"


def test_a_record_with_all_evidence_is_whole_each_time_that_the_table_is_written():
    sealed = {"seal": "ab" * 32}
    contents = collected([counted(measured(made_record("whole"))) | sealed, made_record("bare") | sealed])
    table = table_of(section_of("cases", contents), "Cases")
    for _ in ("page", "CSV"):
        assert {row["Case"]: row["Record"].split(":")[0] for row in texts(table)} == {"whole": "whole", "bare": "lacks"}
        assert "lacks: layers not counted, and active inputs not compared (a record of version 2); the machine was" in (
            table.table.csv(table.rows)
        )


def test_missing_and_untimed_cases_are_counted_and_named():
    contents = collected(
        [made_record("timed")],
        verdicts=[("failed", FAILED), ("untimed", made_verdict())],
        expected=["timed", "failed", "untimed", "never-<b>ran</b>", "nor-this"],
    )
    ended = outcome(contents)
    assert ended.ending == "3 cases run, and 1 failed verification: failed; 2 cases missing that should have run."
    section = section_of("cases", contents)
    assert told(section).startswith("2 passed, 1 failed, 2 missing.")
    assert "neither passed nor failed: never-<b>ran</b>, nor-this." in told(section)
    assert [row["Result"] for row in texts(table_of(section, "Cases"))] == ["failed", "passed", "passed (not timed)"]
    assert outcome(collected([made_record("timed")], expected=["timed", "late"])).short == "1 case missing"
    assert "missing" not in outcome(collected([made_record("timed")], expected=["timed"])).ending


@pytest.mark.parametrize(
    ("truths", "compared"),
    [
        ([(230, 60_000)], "230 of 60,000 inputs with a float64 reference (1 case)"),
        ([(1822, 60_000), (230, 60_000)], "at least 230 of 60,000 inputs with a float64 reference (2 cases)"),
        ([(5, 5), (60_000, 60_000)], "all inputs with a float64 reference (2 cases)"),
        ([OFFICIAL], "all 60,000 inputs with the official categories (1 case)"),
        (
            [OFFICIAL, (1, 9)],
            "all 60,000 inputs with the official categories (1 case); 1 of 9 inputs with a float64 reference (1 case)",
        ),
    ],
)
def test_how_many_inputs_were_compared(truths, compared):
    given = [
        truth if truth is OFFICIAL else SAMPLE | dict(zip(("checked", "inputs"), truth, strict=True))
        for truth in truths
    ]
    verdicts = [(f"case-{k}", made_verdict() | {"truth": truth}) for k, truth in enumerate(given)]
    ended = outcome(collected(verdicts=verdicts))
    assert ended.compared == f"Compared: {compared}."
    parts = [truth["checked"] < truth["inputs"] for truth in given]
    whole, some = ("passed verification", "passed on a sample") if len(parts) == 1 else (
        "all 2 cases passed verification", f"all 2 cases passed, {'each' if all(parts) else '1'} on a sample"
    )  # fmt: skip
    assert ended.short == (some if any(parts) else whole)


def test_the_three_groups_of_a_sample_are_counted():
    record = made_record(official=False)
    assert "A sample has three groups" not in told(section_of("cases", [record]))
    record["verdict"]["truth"] |= {"checked": 1_900, "seed": 0}
    record["verdict"]["values"]["every"] = 40
    section = section_of("cases", [record])
    assert "A sample has three groups" in told(section)
    (row,) = texts(table_of(section, "Cases"))
    assert row[GROUPS] == "40; 1,860; 58,100"
    assert row["Compared with"] == "float64 reference, 1,900 of 60,000 inputs, seed 0"


def test_nothing_and_operations_alone():
    assert outcome(collected()).state == "empty"
    ended = outcome(collected(operations=[made_operation("ours"), made_operation("mkl")]))
    assert ended.ending == "All 2 timed programs passed verification."
    assert ended.compared == "Compared: all output values with a float64 reference."


def test_a_failure_on_one_machine_leaves_the_case_of_another_alone():
    here, there, failed = typed(made_record("same")), typed(made_record("same", (0.3,))), typed(FAILED, Verdict)
    contents = collect([Part([here], [("same", failed)]), Part([there])])
    assert contents.records == [there]
    assert outcome(contents).ending == "2 cases run, and 1 failed verification: same."


def test_a_record_that_one_folder_withholds_is_shown_by_no_other():
    record, failed = made_record("same"), typed(FAILED, Verdict)
    parts = [Part([typed(record)], [("same", failed)]), Part([typed(dict(reversed(record.items())))])]
    for order in itertools.permutations(parts):
        contents = collect(order)
        assert (contents.records, contents.withheld, contents.judged) == ([], ["same"], [("same", failed)])


def test_of_what_is_there_twice_one_is_kept():
    failed = "broken", typed(FAILED, Verdict)
    assert collect([Part([], [failed, failed])]).judged == [failed]
    operations = [{"a": 1, "b": 2}, {"a": 3}, {"b": 2, "a": 1}]
    assert collect([], operations=operations).operations == [{"a": 1, "b": 2}, {"a": 3}]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 9])
def test_fair_keeps_the_latest_of_every_setting_first(most):
    entries = [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("c", 5), ("b", 0)]
    order = [("a", 3), ("b", 1), ("c", 5), ("a", 2), ("b", 0), ("a", 1)]
    kept = fair(entries, most, lambda entry: entry[0], lambda entry: entry[1])
    assert kept == [entry for entry in entries if entry in kept]  # in their order
    assert len(kept) == min(most, len(entries))
    assert len({entry[0] for entry in kept}) == min(most, 3)
    assert set(kept) == set(order[:3]) or most != 3
