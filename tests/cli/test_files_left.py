"""What commands leave outside the current folder: what docs/reference/environment.md names, and nothing else."""

import os
import re
import sys

from children import finished

from spdnn.cli import COMMANDS

EACH = """
challenge --neurons 1024 --layers 2 --inputs digits --count 20 --threads 1 --record run.json
inputs make digits --neurons 1024 -o x.safetensors
network make radixnet --neurons 1024 --layers 2 -o net.safetensors
infer --network net.safetensors --inputs x.safetensors --count 5 --threads 1 --categories categories.txt
run {"neurons":1024,"layers":2,"inputs":"digits","count":20,"threads":1}
verify --categories categories.txt --truth categories.txt
bench model net.safetensors --batches 1 --seconds 0.01 --threads 1
bench kernels --layer-widths 1024 --count 8 --seconds 0.01 --threads 1
bench spmm a.mtx --columns 4 --seconds 0.01 --threads 1
record check run.json
report run.json -o page.html
report run.json --figure times-whole -o figure.svg
compare run.json run.json
plan run.json --devices 2
info --seconds 0.02
completion bash
"""
PROGRAM = "import sys; from spdnn.cli import main; sys.exit(any(main(line.split()) for line in sys.stdin))"


def test_commands_leave_what_the_documentation_names(root, tmp_path):
    assert {line.split()[0] for line in EACH.splitlines() if line} == set(COMMANDS)
    for name in ("home", "temporary", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work/a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n8 8 2\n1 1 1\n8 8 2\n")
    (tmp_path / "commands").write_text(EACH.strip())
    # As a user starts them: what is known as continuous integration has no telemetry.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    with open(tmp_path / "commands") as commands:
        status, out, errors = finished(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path / "work", env=environment, stdin=commands
        )
    assert status == 0, out + errors
    for library in ("onnxruntime", "graphblas", "jax", "mkl"):
        assert re.search(rf"^{library} .*[0-9]", out, re.MULTILINE)
    page = (root / "docs/reference/environment.md").read_text()
    named = re.findall(r"`~/([\w./]+)`", " ".join(re.findall(r"^\| (.+?) \|", page, re.MULTILINE)))
    left = [path.relative_to(tmp_path / "home") for path in (tmp_path / "home").rglob("*")]
    outside = [path for path in left if not any(path.is_relative_to(name) for name in named)]
    assert {str(path) for path in outside} <= {".cache", ".config"}
    assert not [*(tmp_path / "temporary").iterdir()]
