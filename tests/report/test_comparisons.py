"""The section on other libraries: ratios of pairs, and only from records of one comparison."""

import pytest
from records import collected, made_record

from spdnn.report.common.blocks import Rows
from spdnn.report.common.drawing import Figure, save, style
from spdnn.report.networks import section as networks
from spdnn.report.peers import PEERS, comparisons, section

ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


def compared(engine, seconds, identity=ONE, case=None, **problem):
    record = made_record(case or f"peers.{engine}", seconds, **problem)
    notes = {} if engine == "cpu" else {"library": f"The {engine} 1.2"}
    return {**record, "engine": {"name": engine, "notes": notes}, "comparison": identity}


def test_ratios_are_of_pairs_and_the_fastest_is_first():
    scipy = compared("scipy", (0.4, 1.0, 1.2))
    scipy["engine"]["notes"]["threads_used"] = 1
    collection = collected([scipy, compared("mkl", (0.3, 1.5, 0.8)), compared("cpu", (0.1, 0.5, 0.2)), made_record()])
    [one] = comparisons(collection)
    # Pairs of mkl: 3, 3 and 4 times as long as ours; of scipy: 4, 2 and 6. Rates: of 60,000 inputs x 3,932,160 edges.
    assert [line[:7] for line in PEERS.texts(one.rows)[1][1:]] == [
        ["cpu", "this project", "2 threads", "dead inputs", "1.180", "0.2000", "1.00 (1.00 to 1.00)"],
        ["mkl", "The mkl 1.2", "2 threads", "dead inputs", "0.2949", "0.8000", "3.00 (3.00 to 4.00)"],
        ["scipy", "The scipy 1.2", "2 threads, one used", "dead inputs", "0.2359", "1.000", "4.00 (2.00 to 6.00)"],
    ]
    assert [PEERS.kind(row) for row in one.rows] == ["ours", "", ""]
    [figure] = section(collection).every(Figure)
    label = "1,024 × 120, official, 60,000 inputs"
    assert figure.rows == [(label, "mkl", *one.rows[1].ratio[:3]), (label, "scipy", *one.rows[2].ratio[:3])]
    with style():
        assert "peers-record-" in save(figure, "peers").svg
    # None of them is among our own runs.
    assert [run.case for run in next(networks(collection).every(Rows)).rows[0].runs] == [made_record()["case"]]


def test_ours_is_the_run_with_most_reductions_and_only_as_many_samples_make_pairs():
    plain = compared("cpu", (1.0,)) | {"reductions": {"requested": [], "found": {}}}
    records = [plain, compared("cpu", (0.1,), case="reduced"), compared("mkl", (0.2,)), compared("jax", (0.2, 0.2))]
    [one] = comparisons(collected(records))
    assert one.ours.case == "reduced"
    assert [line[6] for line in PEERS.texts(one.rows)[1][1:]] == [
        "1.00 (one pair)",
        "2.00 (one pair)",
        "10.0 (one pair)",
    ]


@pytest.mark.parametrize(
    "other",
    [
        [],
        [compared("mkl", (0.3, 0.4), OTHER)],
        [compared("mkl", (0.3, 0.4), inputs=50_000)],
        [{**compared("mkl", (0.3, 0.4)), "comparison": None}],
    ],
)
def test_other_runs_and_problems_are_not_compared(other):
    assert section(collected([compared("cpu", (0.1, 0.2)), *other])) is None


def test_two_problems_are_two_tables():
    records = [
        compared(name, (0.1, 0.2), neurons=width, official=False, case=f"{name}-{width}")
        for width in (1024, 4096)
        for name in ("cpu", "mkl")
    ]
    for record in records:
        record["problem"]["network_identity"] = f"{record['problem']['neurons']:064x}"
    tables = list(section(collected(records)).every(Rows))
    assert [{row.run.problem.neurons for row in table.rows} for table in tables] == [{1024}, {4096}]
    assert "4,096 neurons × 120 layers" in tables[1].title
