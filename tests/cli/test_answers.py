"""`spdnn infer` with labels, names of classes and a reference."""

import json

import numpy as np
import pytest
from refusals import refused, spdnn

from spdnn import from_matrices, score
from spdnn.engines.oracle import forward
from spdnn.formats.store import write_network
from spdnn.runs.records.files import read_record

INFER = ("infer", "--network", "net.safetensors", "--inputs", "x.npy")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A classifier of six classes in one layer, 40 inputs, labels that it mostly hits, and its float64 outputs."""
    folder, rng = tmp_path_factory.mktemp("answers"), np.random.default_rng(0)
    network = from_matrices([rng.normal(size=(20, 6))], 0.1, last="none")
    x = rng.random((40, 20), dtype=np.float32)
    reference = forward(network, x)[0]
    labels = reference.argmax(axis=1)
    labels[:10] = (labels[:10] + 1) % 6
    write_network(folder / "net.safetensors", network)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", labels)
    np.savez(folder / "y.npz", labels.astype(np.uint8))
    np.savetxt(folder / "y.csv", labels, fmt="%d", header="label", comments="")
    np.savetxt(folder / "y.txt", labels, fmt="%d")
    np.savetxt(folder / "default.txt", labels)
    np.save(folder / "out.npy", reference)
    np.save(folder / "far.npy", reference + 1)
    (folder / "names.txt").write_text("ant\nbee\ncat\ndog\nemu\nfox\n")
    return folder


@pytest.fixture
def infer(files, monkeypatch, capsys):
    monkeypatch.chdir(files)

    def run(*arguments):
        status = spdnn(*INFER, *arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize("labels", ["y.npy", "y.npz", "y.csv", "y.txt", "mark.txt", "windows.csv", "default.txt"])
def test_labels_of_every_kind(infer, files, labels):
    lines = (files / "y.txt").read_text()
    (files / "mark.txt").write_text(lines, encoding="utf-8-sig")
    (files / "windows.csv").write_text(lines, encoding="utf-16")
    status, out, _ = infer("--labels", labels)
    assert status == 0
    assert "active      40 of 40 inputs after the last layer\n" in out
    assert "classes     6: top-1 75.00 % (30 of 40), top-5 " in out
    assert "categories" not in out


def test_names_reference_and_json_say_the_same(infer, files, tmp_path):
    told = tmp_path / "answers.json"
    arguments = ["--labels", "y.npy", "--classes", "names.txt", "--reference", "out.npy", "--json", told]
    status, out, err = infer(*arguments)
    assert (status, err) == (0, "")
    expected = score(np.load(files / "out.npy"), np.load(files / "y.npy"))
    table = [line.split() for line in out[out.index("confusion ") :].splitlines()[1:8]]
    assert table[0] == ["label", "ant", "bee", "cat", "dog", "emu", "fox"]
    assert [[int(cell) for cell in row[1:]] for row in table[1:]] == expected.confusion.tolist()
    assert "reference   equal: the largest difference is " in out
    assert "(1e-05 allowed); the same class for 40 of 40 inputs" in out
    content = json.loads(told.read_text())
    assert (content["inputs"], content["survivors"]) == (40, 40)
    assert (content["classes"]["top1"], content["classes"]["top5"]) == (0.75, expected.top5)
    assert content["classes"]["confusion"] == expected.confusion.tolist()
    assert content["classes"]["names"][0] == "ant"
    assert (content["reference"]["passed"], content["reference"]["same_class"]) == (True, 40)


def test_a_reference_that_differs_is_an_error_that_says_how_far(infer, tmp_path):
    told = tmp_path / "answers.json"
    status, out, err = infer("--reference", "far.npy", "--values", tmp_path / "out.npy", "--json", told)
    assert status == 1
    assert "reference   DIFFERENT: " in out
    assert err.startswith("spdnn: the outputs differ from the reference: the largest difference is ")
    assert err.endswith(" times the largest value of the reference (1e-05 allowed)\n")
    assert json.loads(told.read_text())["reference"]["passed"] is False
    assert (tmp_path / "out.npy").exists()  # to look at where they differ
    assert infer("--reference", "far.npy", "--tolerance", 1)[0] == 0


def test_probabilities_are_told_from_logits(infer, files):
    """Those of a reference, and ours."""
    powers = np.exp(np.load(files / "out.npy"))
    for dtype in (np.float64, np.float16):
        np.save(files / "softmax.npy", (powers / powers.sum(axis=1, keepdims=True)).astype(dtype))
        status, _, err = infer("--reference", "softmax.npy")
        assert status == 1
        assert "; the reference is after a softmax (no value is below 0, rows sum to 1), and ours are logits: " in err
        assert "export the outputs of the layer before the softmax (`--last none` leaves it out" in err
        assert err.count("\n") == 1
    write_network(files / "halves.safetensors", from_matrices([np.zeros((20, 2))], 0.5, last="none"))
    np.save(files / "logits.npy", np.ones((40, 2)))
    status, _, err = infer("--reference", "logits.npy", "--network", "halves.safetensors")
    assert status == 1
    assert "; ours are after a softmax (no value is below 0, rows sum to 1), and the reference has logits: " in err


def test_many_classes_show_what_is_mixed_up(infer, files, monkeypatch):
    monkeypatch.setattr("spdnn.cli.answers.SHOWN_CLASSES", 5)
    _, out, _ = infer("--labels", "y.npy", "--classes", "names.txt")
    rows = out[out.index("confusion ") :].splitlines()
    assert rows[0] == "confusion   most often, of 10 wrong predictions (--json has the whole matrix)"
    assert sum(int(row.split()[-1]) for row in rows[2:]) == 10
    assert rows[1].split() == ["label", "taken", "for", "inputs"]


def test_the_first_inputs_take_the_first_labels(infer):
    status, out, _ = infer("--labels", "y.npy", "--reference", "out.npy", "--count", 20)
    assert status == 0
    assert "top-1 50.00 % (10 of 20)" in out
    assert "the same class for 20 of 20 inputs" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--classes", "names.txt"], "--classes names the classes of --labels; give --labels y.npy too"),
        (["--tolerance", "1"], "--tolerance is for --reference"),
        (["--labels", "nowhere.npy"], "nowhere.npy: there is no such file of labels"),
        (["--labels", "net.safetensors"], "labels are .npy, .npz, .csv or .txt files"),
        (["--labels", "x.npy"], "x.npy: of shape (40, 20); one whole number for each input is needed"),
        (["--labels", "array.txt"], "array.txt: this is no text file"),
        (["--labels", "short.txt"], "short.txt: 3 labels for 40 inputs"),
        (["--labels", "floats.csv"], "floats.csv:1: '1.5' is not a label; one is a whole number"),
        (["--labels", "nan.csv"], "nan.csv:1: 'nan' is not a label; one is a whole number"),
        (["--labels", "words.csv"], "words.csv:2: 'cat' is not a label; one is a whole number"),
        (["--labels", "y.npy", "--classes", "short.txt"], "short.txt: 3 names; the network has 6 outputs"),
        (["--labels", "y.npy", "--classes", "twice.txt"], "twice.txt:2: class 'a' is there twice, first in line 1"),
        (["--labels", "y.npy", "--classes", "odd.txt"], r"odd.txt:1: '\x1b[2J' is no name of a class"),
        (["--reference", "x.npy"], "x.npy: outputs (40, 20); 40 inputs have (40, 6)"),
        (["--reference", "y.npy"], "y.npy: it must be outputs (40, 6), not (40,); class labels go to --labels"),
        (["--labels", "index.csv"], "index.csv:2: '0,4' is not a label; one is a whole number; a line has one label,"),
        (["--labels", "both.npz"], "both.npz: 2 arrays (x, y); labels are one array: save it alone"),
        (["--values", "out.csv"], "--values out.csv: the name must end with .npy"),
        (["--values", "full.npz"], "--values full.npz: the name must end with .npy; --top K writes .npz"),
        (["--values", "out.npy", "--top", "3"], "--values out.npy: the name must end with .npz where --top is given"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, infer, files, capsys):
    (files / "short.txt").write_text("0\n1\n2\n")
    (files / "array.txt").write_bytes((files / "y.npy").read_bytes())
    (files / "words.csv").write_text("label\ncat\n")
    (files / "floats.csv").write_text("1.5\n2\n")
    (files / "index.csv").write_text(",label\n0,4\n")
    np.savez(files / "both.npz", x=np.zeros((40, 20)), y=np.zeros(40, int))
    (files / "nan.csv").write_text("nan\n2\n")
    (files / "twice.txt").write_text("a\na\n")
    (files / "odd.txt").write_text("\x1b[2J\n")
    assert sentence in refused(capsys, *INFER, *arguments)


def test_a_record_has_the_accuracy_and_the_page_shows_it(infer, files):
    assert infer("--labels", "y.npy", "--record", "run.json")[0] == 0
    found = read_record("run.json").accuracy
    assert (found.top1, sum(map(sum, found.confusion)), len(found.confusion)) == (30, 40, 6)
    assert spdnn("report", "run.json", "-o", "own.html") == 0
    page = (files / "own.html").read_text()
    assert "Confusion matrix of " in page
    assert "The twelve networks" not in page
    assert ">TeraEdges/s</span>" not in page  # the unit fits 4,800 products
