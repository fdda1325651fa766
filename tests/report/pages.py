"""Pages of every kind that the report can be, from the records that its other tests make."""

import json
from collections.abc import Callable
from pathlib import Path

from operation_cases import made_imbalance, made_operation
from records import HOSTILE, made_record, made_verdict, many, measured, rendered, solved, stored, stored_verdict
from test_comparisons import compared
from test_operations import products
from test_scaling import strong, weak
from test_schedules import several

from spdnn.report.rendering import RecordFolder

FAILED = "failed-case"
LONG = "a-name-without-a-place-to-break-it-" * 5


def ladder() -> list[dict]:
    """A record for each of four settings."""
    steps = [((), 10.0), (("dead",), 2.0), (("dead", "inputs"), 0.5), (("dead", "inputs", "neurons"), 0.1)]
    return [made_record(f"rung-{place}", (seconds,), on) for place, (on, seconds) in enumerate(steps)]


def peers() -> list[dict]:
    return [compared(name, (0.1 * place, 0.2 * place)) for place, name in enumerate(("cpu", "mkl", "scipy"), 1)]


def operations() -> list[dict]:
    found = [product for sparsity in (0.7, 0.8, 0.9, 0.98) for product in products(sparsity, layer=f"layer-{sparsity}")]
    skewed = {"set_name": "c", "network": "skewed", "layer": "zipf_1"}
    found.append(made_operation("ours", imbalance=made_imbalance(1.01), **skewed))
    found.append(made_operation("ours-in-order", imbalance=made_imbalance(1.7, 1.65), **skewed))
    whole = {"operation": "model", "set_name": "models", "network": "transformer", "layer": "small 256 tokens"}
    found.append(made_operation("sparse-arithmetic", attention_bytes=1 << 20, **whole))
    found[-1]["program"]["kind"] = "ours"
    found.append(made_operation("dense", (0.003, 0.0033, 0.0036), attention_bytes=1 << 30, **whole))
    return found


def hostile(record: dict) -> dict:
    """The record, its every text markup or a word wider than a telephone."""
    record["engine"]["name"] = HOSTILE[:60]
    record["engine"]["notes"] = {HOSTILE: HOSTILE, LONG: LONG}
    record["problem"]["network"] = {"source": HOSTILE}
    record["problem"]["inputs"] = {"source": LONG}
    record["environment"].update(cpu=LONG, command=HOSTILE + LONG, commit=LONG, versions={HOSTILE: LONG})
    record["verdict"]["truth"]["source"] = LONG
    return record


FEW = [
    solved(made_record("a-none", (1.1, 1.0, 1.05), reductions=())),
    solved(made_record("b-all", (0.11, 0.1, 0.12)), 0.5, "workflow", ["inputs"]),
    made_record("c-deep", (0.7, 0.72), layers=480),
    hostile(made_record(f"d-{HOSTILE}", (0.2,), official=False, source="digits")),
]

# Of each kind: its run records, its operation records, and the cases whose verdict is a failure. Together they show
# all that a page can.
KINDS: dict[str, Callable[[], tuple[list[dict], list[dict], list[str]]]] = {
    "nothing": lambda: ([], [], []),
    "few": lambda: (FEW, operations(), []),
    "failed": lambda: ([], [], [FAILED]),
    "hostile": lambda: ([hostile(made_record(HOSTILE, official=False)), made_record(LONG, official=False)], [], []),
    "all": lambda: (
        [*map(measured, many()), *ladder(), *peers(), *strong(), *weak(1, 2, 4), *several()],
        operations(),
        [FAILED],
    ),
}
FULL = tuple(kind for kind in KINDS if kind not in ("nothing", "failed"))


def made(kind: str, folder: Path) -> Path:
    """A page of `kind`, in `folder`."""
    records, products, failed = KINDS[kind]()
    paths = stored(folder, *records)
    if products:
        paths.append(folder / "operations.jsonl")
        paths[-1].write_text("".join(json.dumps(product) + "\n" for product in products), encoding="utf-8")
    verdicts = [stored_verdict(folder, case, made_verdict(passed=False)) for case in failed]
    rendered(folder / "report.html", [RecordFolder(paths, verdicts)], figures=True, published=kind == "few")
    return folder / "report.html"
