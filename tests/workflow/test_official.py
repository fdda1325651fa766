"""`source: official`, run for real: archives are packed here from layers by formula, with a table of their own."""

import hashlib
import io
import tarfile

import pytest
from test_workflow import PRESET, full, passed

from spdnn.core import challenge
from spdnn.formats import text
from spdnn.formats.catalog import COLUMNS
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.records.files import read_record

pytestmark = pytest.mark.xdist_group("workflow")
SIZES = [(1024, 120), pytest.param(4096, 120, marks=full)]


def pack(path, network):
    """The layers as an official archive has them: neuronN/nN-lK.tsv in a .tar.gz."""
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for k, layer in enumerate(network.layers(), 1):
            content = text.layer_text(layer)
            info = tarfile.TarInfo(f"neuron{network.inputs}/n{network.inputs}-l{k}.tsv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def mirror(root, tmp_path, mnist_file, monkeypatch):
    """A function that makes a mirror of the images and the archive of a network, and a table with its digest."""

    def make(network):
        head, *rows = (root / "config/data.tsv").read_text().splitlines()
        rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in (line.split("\t") for line in rows)}
        images, archive = rows["mnist-train-images"], rows[f"network-{network.inputs}"]
        folder = tmp_path / "mirror"
        pack(folder / archive["path"], network)
        (folder / images["path"]).parent.mkdir()
        (folder / images["path"]).symlink_to(mnist_file)
        content = (folder / archive["path"]).read_bytes()
        archive |= {"algorithm": "sha256", "digest": hashlib.sha256(content).hexdigest(), "bytes": str(len(content))}
        (tmp_path / "own.tsv").write_text("\n".join([head, *("\t".join(row.values()) for row in rows.values())]))
        monkeypatch.setenv("SPDNN_SOURCES", str(tmp_path / "own.tsv"))
        return folder

    return make


@pytest.mark.needs("mnist")
@pytest.mark.parametrize(("neurons", "layers"), SIZES)
def test_official_archives_from_the_download_to_the_report(tmp_path, mirror, neurons, layers):
    """The archive has a layer more than any case: it is not read, so the read rate is of the layers that ran."""
    folder, place, network = mirror(RadixNet(neurons, layers + 1)), tmp_path / "run", RadixNet(neurons, layers)
    place.mkdir()
    words = [f"neurons={neurons}", f"layers={layers}", "source=official", "inputs=mnist", "count=null", "repeats=1"]
    passed(place, *PRESET, "--config", *words, f"mirror={folder}")
    (record,) = map(read_record, place.glob("results/records/*.json"))
    assert record.problem.official == f"{neurons}-{layers}"
    described = {"source": "text", "path": f"neuron{neurons}.tar.gz", "sha256": network.sha256()}
    assert record.problem.network == described
    assert (record.verdict.passed, record.verdict.truth.kind) == (True, "official")
    assert record.result.categories == challenge.TRUTH_COUNT[neurons]
    assert record.read_rate == record.problem.edges / record.time_to_solution.network > 0
    assert "Read rate, million edges/s" in (place / "results/report.html").read_text()
