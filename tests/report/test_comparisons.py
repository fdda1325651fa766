"""The page's section on peers: ratios of pairs, and only from records of one comparison."""

import pytest
from test_report import made_record, made_verdict, shown

ONE, OTHER = "0123456789abcdef", "fedcba9876543210"


def compared(engine, seconds, identity=ONE, case=None, **problem):
    record = made_record(case or f"peers.{engine}", seconds, **problem)
    notes = {} if engine == "cpu" else {"library": f"The {engine} 1.2"}
    return {**record, "engine": {"name": engine, "notes": notes}, "comparison": identity}


def section(page):
    """The text of the section on peers."""
    return page.text.split("Other libraries in the same run")[1].split("All records")[0]


def test_ratios_of_pairs_are_on_the_page():
    page = shown([compared("cpu", (0.1, 0.5, 0.2)), compared("mkl", (0.3, 1.5, 0.8))])
    text = section(page)
    assert "The mkl 1.2" in text
    assert "this project" in text
    assert {1.0, 3.0} <= set(page.values)
    assert "3.00 to 4.00" in text
    assert text.index("this project") < text.index("The mkl 1.2")  # the fastest first


def test_a_library_that_uses_one_thread_is_told():
    single = compared("scipy", (0.3, 0.4))
    single["engine"]["notes"]["threads_used"] = 1
    text = section(shown([compared("cpu", (0.1, 0.2)), single]))
    assert text.count("2 threads, one used") == 1


def test_a_peer_is_not_among_our_runs():
    records = [made_record("mine"), compared("cpu", (0.1, 0.2)), compared("mkl", (0.3, 0.4))]
    page = shown(records)
    ours = page.source.split("Every run on these networks: 1")[1].split("</table>")[0]
    assert "mkl" not in ours
    assert "peers.mkl" in page.text  # its verdict and provenance are told all the same


def test_only_peers_make_a_page():
    page = shown([compared("cpu", (0.1, 0.2)), compared("mkl", (0.3, 0.4))])
    assert "The twelve networks" not in page.text
    assert "Survivors" not in page.text
    assert "Other libraries in the same run" in page.text


@pytest.mark.parametrize(
    "other",
    [compared("mkl", (0.3, 0.4), OTHER), compared("mkl", (0.3, 0.4), inputs=50_000), made_record("alone", (0.3, 0.4))],
)
def test_other_runs_and_other_problems_are_not_compared(other):
    assert "Other libraries in the same run" not in shown([compared("cpu", (0.1, 0.2)), other]).text


def test_a_failed_verdict_takes_a_peer_away():
    records = [compared(name, (0.1, 0.2), case=name) for name in ("cpu", "mkl", "jax")]
    text = section(shown(records, [("jax", made_verdict(passed=False))]))
    assert "The mkl 1.2" in text
    assert "The jax 1.2" not in text


def test_two_problems_are_two_tables():
    records = [
        compared(name, (0.1, 0.2), neurons=width, official=False, case=f"{name}-{width}")
        for width in (1024, 4096)
        for name in ("cpu", "mkl")
    ]
    for record in records:
        record["problem"]["network_identity"] = f"{record['problem']['neurons']:064x}"
    page = shown(records)
    captions = [tag for tag, attributes in page.tags if attributes.get("aria-label", "").startswith("Peers on")]
    assert len(captions) == 2
    assert "4,096 neurons × 120 layers" in section(page)
