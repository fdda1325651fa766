"""Networks of one's own: inputs a second, the accuracy on labels, and every run."""

from records import SHA, cells, figures_of, made_record, section_of, table_of, texts, told


def own(case="mine-12", seconds=(0.5,), inputs=1000, **problem):
    return made_record(case, seconds, official=False, neurons=64, layers=12, inputs=inputs, **problem)


def test_the_fastest_is_first_and_every_run_is_in_the_figure():
    assert section_of("own", [made_record()]) is None
    alone = section_of("own", [own()])
    assert told(alone) == "mine-12 takes 500 ms for 1,000 inputs: 2,000 inputs a second."
    assert figures_of(alone) == {}
    section = section_of("own", [own(), own("other-12", (0.25, 0.25))])
    assert told(section) == "The fastest, other-12, takes 250 ms for 1,000 inputs: 4,000 inputs a second."
    assert figures_of(section)["own-networks"].rows == [("other-12", 4000, 0.25), ("mine-12", 2000, 0.5)]
    many = figures_of(section_of("own", [own(f"mine-{k}", (k + 1.0,)) for k in range(14)]))["own-networks"]
    assert (len(many.rows), many.caption) == (
        12,
        "Inputs ÷ median inference seconds. The fastest; 2 more are in the table.",
    )


def test_a_network_has_its_layers_and_widest_layer():
    record = own(inputs=8)
    record["problem"]["network"] = {"source": "state dict"}
    (row,) = texts(table_of(section_of("own", [record]), "Every run"))
    assert row["Inputs"].startswith("12 layers, at most 64 wide, state dict; ")
    assert row["Really computed, edges/s"].endswith(" of the edges)")
    record["result"]["edges_computed"] = 9 * record["problem"]["edges"]  # 9 inputs are computed, of 8
    (row,) = texts(table_of(section_of("own", [record]), "Every run"))
    assert row["Really computed, edges/s"].endswith("(112 % of the edges: inputs are padded to whole tiles)")


def test_the_accuracy_of_the_latest_run_and_which_classes_were_taken_for_which():
    record, older = own(), own("older")
    record["created"] = "2026-01-02T03:04:05Z"
    confusion = [[300, 10, 5], [0, 400, 1], [60, 10, 214]]
    record["accuracy"] = {"labels_sha256": SHA, "top1": 914, "confusion": confusion}
    older["accuracy"] = {"labels_sha256": SHA, "top1": 1, "confusion": None}
    section = section_of("own", [record, older])
    assert "mine-12: the largest output is that of the label for 91.4 % of the inputs (top-1, 914 of 1,000)." in told(
        section
    )
    assert "top-1, 1 of" not in told(section)
    rows = cells(table_of(section, "Confusion matrix of mine-12"))
    assert [list(map(int, row.values())) for row in rows] == [[k, *counts] for k, counts in enumerate(confusion)]
    record["accuracy"]["confusion"] = [[0] * 21] * 21
    assert "Confusion" not in " ".join(map(str, section_of("own", [record]).blocks))
