"""Operation records: sound ones go through files, and what is wrong or made up is refused in one sentence."""

import json
import re

import pytest
from operation_cases import SHA, made_imbalance, made_operation
from refusals import refuses

from spdnn.core.validation import builtins
from spdnn.runs.records.files import read_all, read_record, seal_record, write_operations
from tests.runs.records.test_run_record import changed, sound, unsound

SOUND = made_operation(imbalance=made_imbalance())


@pytest.mark.parametrize("name", ["ours", "mkl", "blas", "scipy"])
@pytest.mark.parametrize("operation", ["spmm", "sddmm", "attention", "model"])
def test_sound_records_go_through_a_file(tmp_path, name, operation):
    record = made_operation(name, operation=operation, imbalance=made_imbalance() if name == "ours" else None)
    write_operations(tmp_path / "a.jsonl", [record, record])
    assert builtins(read_all([tmp_path / "a.jsonl"])[1]) == [record, record]
    (tmp_path / "b.json").write_text(json.dumps(record))
    assert builtins(read_all([tmp_path / "a.jsonl", tmp_path / "b.json"])) == ([], [record] * 3)
    refuses("b.json: ", read_record, tmp_path / "b.json")


def test_a_record_of_a_device_and_one_without_a_machine():
    sound(made_operation(machine=False))
    record = made_operation()
    record["environment"]["gpu"] = "A GPU"
    record["machine"]["instruction_set"] = "sm_90"
    assert sound(record).device == ("cuda", "A GPU")


def test_the_accuracy_of_a_network_with_labels():
    record = made_operation(operation="network")
    assert "accuracy" not in builtins(sound(record))
    record["accuracy"] = {"labels_sha256": SHA, "top1": 5, "confusion": [[3, 1], [0, 2]]}
    assert builtins(sound(record)) == record
    for path, value, sentence in (
        ("accuracy.top1", 4, "accuracy.confusion: 5 right answers, and top-1 is 4"),
        ("accuracy.confusion", None, "accuracy.confusion: null, so the number of inputs is unknown"),
    ):
        unsound(sentence, changed(record, path, value))


def test_what_follows_from_the_facts():
    record = sound(made_operation(seconds=(0.1, 0.2, 0.4), imbalance=made_imbalance()))
    assert record.operations_per_second.median == record.useful_operations / 0.2
    assert (record.device, record.span) == (("cpu", "A CPU"), "one product, operands in place")
    assert record.problem.sparsity == 1 - 52429 / (512 * 1024)
    assert record.imbalance == 1.05


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("schema", "spdnn-record", "schema: "),
        ("operation", "gemm", "operation: "),
        ("extra", 1, "extra"),
        ("verification", ..., "verification"),
        ("problem.rows", 0, "problem.rows: "),
        ("problem.layer", "<script>", "problem.layer: "),
        ("problem.columns", 1 << 17, "problem.index_bits: 16, and they do not reach 131072 columns"),
        ("problem.nonzeros", 512 * 1024 + 1, "problem.nonzeros: 524289 in 512 x 1024"),
        ("problem.sparsity", 0.91, 'problem: there is no field "sparsity"'),
        ("version", 2, "version: 2 is not 3"),
        ("program.kind", "fast", "program.kind: "),
        ("program.name", "a" * 200, "program.name: "),
        ("program.threads_used", 3, "program.threads_used: 3 of 2"),
        ("seconds", [0.001, 0.0, 0.001], "seconds: every sample must be a positive number"),
        ("seconds", [], "seconds: "),
        ("useful_operations", 1, "useful_operations: 1, but the nonzeros take"),
        ("multiply_adds", 1, "multiply_adds: 1, but a sparse program takes 13421824"),
        ("program.kind", "dense", "multiply_adds: 13421824, but a dense program takes 134217728"),
        ("verification.worst", 1.5, "verification.worst: 1.5 times the tolerance"),
        ("verification.worst", float("nan"), "verification.worst: nan is not a finite number"),
        ("verification.checked", 512 * 256 + 1, "verification.checked: 131073 of 131072 entries"),
        ("verification.checked", 5, "verification.seed: a sample has one; 5 of 131072"),
        ("verification.entries", 1 << 20, "verification.seed"),
        ("verification", {**SOUND["verification"], "entries": 7, "checked": 7}, "7, but the output has 131072"),
        ("nonzero_imbalance", 2.5, "imbalance: 2.5; maximum over mean of 2 threads is at most 2"),
        ("thread_imbalance", [0.5], "thread_imbalance"),
        ("machine.instruction_set", "sm_90", "machine.instruction_set: sm_90 is not of a device of kind cpu"),
        ("environment.command", ..., "environment"),
    ],
)
def test_what_is_wrong_is_one_sentence(path, value, sentence):
    unsound(f"^r: .*{re.escape(sentence)}", changed(SOUND, path, value))


def test_a_sealed_record_that_was_edited_is_refused(tmp_path):
    sealed = seal_record(sound(made_operation()), "r")
    write_operations(tmp_path / "a.jsonl", [sealed])
    assert read_all([tmp_path / "a.jsonl"])[1] == [sealed]
    text = (tmp_path / "a.jsonl").read_text()
    assert text.count('"repeats": 12,') == 1
    (tmp_path / "a.jsonl").write_text(text.replace('"repeats": 12,', '"repeats": 7,'))
    refuses("a.jsonl, line 1: `seal`: the record was changed after it was written", read_all, [tmp_path / "a.jsonl"])


def test_a_rate_beyond_the_machine_is_no_record():
    """13,421,824 multiply-adds take 67 us on a machine of 2e11 a second; a third of that is too little."""
    sound(made_operation(seconds=(0.00004,)))
    unsound("a number above the machine's limit is a failure, not a record", made_operation(seconds=(0.00002,)))
    unsound("times what the machine can multiply and add", made_operation("blas", seconds=(0.0002,)))


def test_a_sample_of_dlmc_that_cannot_be():
    matrix = {"name": "rn50/random_pruning/0.5/a.smtx", "drawn": 3, "drawn_from": 2}
    record = changed(SOUND, "problem.dlmc", matrix)
    unsound("problem.dlmc: a matrix of it, and origin is generated", record)
    unsound("problem.dlmc.drawn: 3 of 2 matrices", changed(record, "problem.origin", "dlmc"))


def test_nothing_unsound_is_written(tmp_path):
    records = [made_operation(), changed(SOUND, "verification.worst", 1.5)]
    refuses("a.jsonl, line 2: verification.worst", write_operations, tmp_path / "a.jsonl", records)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "spdnn-operation", "version": 4}', "null", '"x"', ""])
def test_files_that_hold_none(tmp_path, text):
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(text)
        if name == "a.jsonl" and not text:
            assert read_all([tmp_path / name]) == ([], [])
            continue
        refuses(f"{name}", read_all, [tmp_path / name])
