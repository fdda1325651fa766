"""Where the numbers in the text of the documentation come from; those of its tables, measured.py makes.

`passages` has each passage with numbers, and what they must be by records, code or published results. `UNCHECKED` has
those that nothing here can say, with the reason; `NAMES` has the names with digits of each page. Options of commands
are those that records were measured with. `faults` tells every number that is wrong or in none of them.
"""

import csv
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import measured
import numpy as np

from spdnn.core import challenge, limits, statistics, turns
from spdnn.core.resources import WEIGHTS_SHARE
from spdnn.engines import model, oracle
from spdnn.engines.costs.official import STREAMED_BYTES
from spdnn.engines.cpu import ceilings
from spdnn.engines.cpu import schedule as cpu
from spdnn.engines.cuda import choice
from spdnn.engines.cuda.rows import TILE
from spdnn.engines.reductions import dead, inputs
from spdnn.engines.taskgraph.decomposition import JOINED
from spdnn.formats.radixnet import GROUP, RadixNet
from spdnn.kernels import tiles
from spdnn.kernels.cuda import settings, sliced
from spdnn.ops import onnx_compile, onnx_products, onnx_timing, onnx_trial
from spdnn.ops.models.mobilenet import MobileNetConfig
from spdnn.ops.models.transformer import TransformerConfig
from spdnn.runs import measure, parts
from spdnn.runs.records.published import read_baselines
from spdnn.runs.records.run_record import RUN_VERSION, RunRecord
from spdnn.runs.verify import official, verdict

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"(?<!\w)[A-Za-z_][A-Za-z_]*-?\d+\w*")  # sm_80, float32, ResNet-50
NUMBER = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
OPTION = re.compile(r"([a-z][\w-]*)[= ](\d[\d.,]*)")
# Tables that are made, commands, targets of links, and the marks of lists.
LEFT_OUT = re.compile(
    r"<!-- measured: (\w+) -->.*?<!-- /measured -->|<!-- faults -->.*?<!-- /faults -->|"
    r"```(?:sh|yaml)\n.*?```|(?<=\])\([^)]*\)|^ *\d\. ",
    re.DOTALL | re.MULTILINE,
)
UNCHECKED = {
    "README.md": {
        "two cores (Zen 3,": "the records call the processor AMD EPYC",
        "MLPClassifier((256,), random_state=0)": "a program that tests run",
        "np.quantile(abs(w), 0.8)": "a program that tests run",
        ".argmax(1)": "a program that tests run",
    },
    "docs/results.md": {
        "Zen 3 (AVX2; 512 KiB second-level cache per core, 32 MiB third-level)": "of the processor's data sheet",
        "Zen 4 (AVX-512; 1 MiB and 32 MiB)": "of the processor's data sheet",
    },
    "docs/explanation/cuda.md": {
        "(12.9 only)": "NVRTC 13 has no sm_70, and the last version before it is 12.9",
        "NVRTC 12.9 and 13": "tests/cuda/nvrtc.py compiles with both",
    },
    "docs/explanation/onnx.md": {"0 x NaN and 0 x infinity": "arithmetic"},
    "docs/explanation/ranks.md": {
        "rank 0 of a node": "the number of a rank",
        "rank 0: verify": "the number of a rank",
        "Rank 0 writes": "the number of a rank",
    },
    "docs/explanation/reductions.md": {"activation(bias) is 0 everywhere": "of the definition"},
    "docs/explanation/trust.md": {
        "values from 0 to 1": "spdnn/runs/parts.py draws them there",
        "1024 neurons x 120 layers": "tests/faults/problems.py",
        "with 300 edges an output": "tests/faults/problems.py",
    },
    "docs/explanation/verification.md": {
        "own sum, (n + 2) u": "of the definition",
        "drawn from 0 to 1": "spdnn/runs/parts.py draws them there",
    },
    "docs/explanation/latency.md": {"of the inputs are 0.": "of the definition"},
    "docs/explanation/engine-cpu.md": {"`csr` (T = 1)": "of the definition"},
}
NAMES = {
    "README.md": "float32 float64 AVX-512 AVX2",
    "docs/results.md": "float32 float64 AVX-512 AVX2 V100 ResNet-50 MobileNetV1 H100 sm_90 L2 l2_batches h100",
    "docs/artifact.md": "zen3 h100 h200",
    "docs/explanation/cuda.md": "sm_70 sm_80 sm_120 H100 L2",
    "docs/explanation/engine-cpu.md": "float32",
    "docs/explanation/engines.md": "float32",
    "docs/explanation/latency.md": "float32 float64",
    "docs/explanation/onnx.md": "float16 float32 SHA-256",
    "docs/explanation/ranks.md": "MPI-3",
    "docs/explanation/reductions.md": "float32 float64",
    "docs/explanation/sparse-operations.md": "float16 float32",
    "docs/explanation/trust.md": "float64 sha256 SHA-256",
    "docs/explanation/verification.md": "float32 float64",
}


def of_source(path: str, pattern: str) -> tuple[float, ...]:
    """The numbers in a file that is no module of the package."""
    (found,) = set(re.findall(pattern, (ROOT / path).read_text(encoding="utf-8")))
    return tuple(map(float, [found] if isinstance(found, str) else found))


def constant(name: str, path: str) -> float:
    return of_source(f"spdnn/kernels/cpu/{path}", rf"\b{name} = (\d+)")[0]


def mlp() -> tuple[int, ...]:
    """Widths of the network whose calls were timed, percent of nonzeros, edges, and percent of zeros in the inputs."""
    record = measured.kept("calls").operations[0]
    problem = record.problem
    zeros = re.search(r"--zeros (\S+)", record.environment.command)[1]
    widths = map(int, problem.network.split("-"))
    return *widths, round(100 * problem.nonzeros / problem.columns), problem.nonzeros, round(100 * float(zeros))


def shapes() -> tuple[int, int]:
    """How many shapes the first set of operations has, and the columns of a Transformer's products."""
    with open(ROOT / "config/ops-problems.csv", newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["set"] == "a"]
    (columns,) = {row["inference"] for row in rows if row["network"] == "transformer"}
    return len(rows), int(columns)


def mask() -> float:
    """Percent of the attention of the paper's Transformer that is left out, as timed."""
    (sparsity,) = {
        record.problem.sparsity
        for record in measured.kept("operations").operations
        if record.problem.network == "transformer" and record.problem.layer.startswith("paper")
    }
    return 100 * sparsity


def preparation() -> float:
    """Milliseconds for a layer at most, rounded up."""
    each = [
        np.median(record.prepare_seconds) / layers
        for ((_, layers), kind), record in measured.runs().items()
        if kind == "all"
    ]
    return np.ceil(1000 * max(each))


def fewer_edges(neurons: int) -> float:
    """How many times fewer edges are left where identical neurons are computed once, of 1,920 layers."""
    found = measured.runs()[(neurons, challenge.MAX_LAYERS), "all"].reductions.found["neurons"]
    return found["edges"] / found["edges_left"]


def dead_alone() -> list[RunRecord]:
    """The H100's records with dead inputs alone, the oldest first."""
    (networks,) = [networks for name, networks in measured.on_gpus().items() if "H100" in name]
    found = [runs_of["dead"] for runs_of in networks.values() if "dead" in runs_of]
    return sorted(found, key=lambda record: record.created)


def measured_first() -> tuple[int, int]:
    """The network of the oldest of them, by another commit than the others."""
    first, *others = dead_alone()
    assert first.environment.commit not in {record.environment.commit for record in others}
    return first.problem.neurons, first.problem.layers


def apart() -> float:
    """Into how many parts the inputs of an output, in pairs, divide the neurons of a first block."""
    network = RadixNet(challenge.WIDTHS[0], 1)
    pairs = network.layer(0).matrix()[:, [0]].nonzero()[0][::2]
    (gap,) = set(np.diff(pairs))
    return network.neurons / gap


def overflow() -> tuple[float, ...]:
    """That the example overflows from left to right, and is 0 by even and odd terms."""
    terms = np.array([3e38, 3e38, -3e38, -3e38], np.float32)
    with np.errstate(over="ignore"):
        assert np.isinf(np.float32(terms[0] + terms[1]))
    return *map(abs, map(float, ("3e38", "3e38", "-3e38", "-3e38"))), float(terms[::2].sum() + terms[1::2].sum())


def options() -> set[tuple[str, str]]:
    """(option, number) of the commands by which records were made."""
    kinds = [measured.kept(kind) for kind in measured.RUNS]
    commands = {record.environment.command for kind in kinds for record in (*kind.records, *kind.operations)}
    cores = {f"cores {record.environment.cores}" for record in measured.runs().values()}
    return {option for told in (*commands, *measured.STREAMED, *cores) for option in OPTION.findall(told)}


def passages() -> dict[str, dict[str, object]]:
    """By page: each passage, and its numbers in their order."""
    *widths, dense, edges, zeros = mlp()
    longest = next(k for k in range(challenge.MAX_LAYERS) if dead.pass_length(k, True) == dead.LONGEST_PASS)
    paper, mobile = TransformerConfig(), MobileNetConfig(width=1.8)
    vectors = of_source("CMakeLists.txt", r'"x86_64_v4\|.*?\|(\d+)" "x86_64_v3\|.*?\|(\d+)" "x86_64\|.*?\|(\d+)"')
    (streamed,) = {record.memory_limit_bytes for record in measured.kept("streamed").records}
    ladder = measured.kept("ladder").records[0].problem
    unstructured = measured.kept("unstructured").records[0].problem
    ours = {record.environment.cores for record in measured.runs().values()}
    pruned = {
        float(record.problem.layer.split()[1])
        for record in measured.kept("accuracy").operations
        if record.problem.layer.startswith("pruned")
    }
    fused = "spdnn/kernels/cpu/fused_layers.cpp"
    held = TILE / settings.STAGED_LANES  # values of a neuron in a load
    accuracy = partial(of_source, "benchmarks/accuracy.py")
    return {
        "README.md": {
            "Python 3.11+": of_source("pyproject.toml", 'requires-python = ">=([0-9.]+)"'),
            "784-2048-2048-10 with 5 % nonzero weights and 80 % zeros": (*widths, dense, zeros),
            "60,000 MNIST inputs": challenge.INPUTS,
            "BSD 3-Clause": of_source("LICENSE", r"BSD (\d)-Clause"),
        },
        "docs/results.md": {
            "with 32 in every value": challenge.YMAX,
            "16 times the depth": challenge.DEPTHS[-1] / challenge.DEPTHS[0],
            "at most 3 ms of preparation": preparation(),
            "`snakemake --cores 2`": tuple(ours),
            "`--configfile config/ladder.yaml`, 1024 x 120;": (ladder.neurons, ladder.layers),
            "random networks of 24 layers with 6,000 inputs": (unstructured.layers, unstructured.input_count),
            "medians of 3, from": len(measured.kept("ranks").records[0].seconds),
            "on up to 768 V100": max(int(row.devices) for row in read_baselines() if row.devices.isdigit()),
            "## Within 4 GiB": streamed / 2**30,
            "collection's 25 shapes from Transformer and ResNet-50, for one image or 256 tokens": shapes(),
            "for each 16 columns": vectors[0] / 4,
            "12,288 tokens, 3 layers, 8 heads, width 1,024 and a 95.5 % sparse mask": (
                *(paper.sequence, paper.layers, paper.heads, paper.width, mask()),
            ),
            "width 1.8 and is 90 % sparse": (mobile.width, 100 * mobile.sparsity),
            "four 3 x 3 convolutions, 64 to 256 channels": (
                *accuracy(r"convolutions of (\d) x (\d), of (\d+) to (\d+) channels"),
            ),
            "Transformer (2 layers, width 256; the 8 rows": (
                *(
                    *accuracy(r"layers: int = (\d+)"),
                    *accuracy(r"width: int = (\d+)"),
                    *accuracy(r"nn.Linear\((\d), w"),
                ),
            ),
            "1,257 images train, 540 are held out": (
                *accuracy(r"TRAINING = (\d+)"),
                *accuracy(r"the last (\d+) are held"),
            ),
            "removes 90 or 95 %": tuple(sorted(pruned)),
            "all 60,000 inputs. The time": challenge.INPUTS,
            "65536 x 1920 with dead inputs alone was measured before": measured_first(),
            "with 16 CPU cores": tuple({record.environment.cores for record in dead_alone()}),
        },
        "docs/artifact.md": {"within 4 GiB": streamed / 2**30},
        "docs/explanation/cuda.md": {
            "(tiles, neurons, 32 inputs): the 32 values": (TILE, TILE),
            "up to 64 from the 129th layer on": (dead.LONGEST_PASS, longest + 1),
            "groups of 4 or 2": sorted(sliced.SHARED, reverse=True)[:2],
            "One 128-bit load from shared memory, a *gather*, brings 4 inputs": (32 * held, held),
            "slices of 4 groups, in chunks of 8 gathers": (sliced.SLICE, sliced.CHUNK),
            "One 16-byte load brings 8 indices to the 8 threads": (
                *(2 * sliced.CHUNK, sliced.CHUNK, settings.STAGED_LANES),
            ),
            "copies 16 bytes if": of_source("spdnn/kernels/cuda/async.cuh", r"async.cg.*\], (\d+);"),
            "else 4 bytes": of_source("spdnn/kernels/cuda/async.cuh", r"async.ca.*\], (\d+);"),
            "each of the 32 inputs. A thread": TILE,
            "Settings for 1, 4, 8, 16 and 32 inputs": settings.PERSISTENT_INPUTS,
            "after the 32nd": choice.LATER,
            "fewer than 5 % of the rows die": 100 * inputs.SETTLED,
        },
        "docs/explanation/data-line.md": {
            "65536 x 1920 has 8 GB as layers": (65536, 1920, round(2 * RadixNet(65536, 1920).edges / 1e9))
        },
        "docs/explanation/engine-cpu.md": {
            "then 32 gathers": challenge.NONZEROS_PER_NEURON,
            "bytes in a vector (64, 32 or 16)": vectors,
            "exceed 8 MiB, 16 for few rows, and 1 for one or two": (
                *(tiles.TILE_BYTES / 2**20, tiles.TILES[0], tiles.best_tile(None, tiles.FEW, 1)),
            ),
            "same input neurons (16 in every": GROUP,
            "8 at a time (4 with narrower": (constant("kTogether", "sets.hpp"), constant("kTogether", "sets.hpp") / 2),
            "features of a tile exceed 1 MiB": 2 ** (of_source(fused, r"kNear = 1 << (\d+)")[0] - 20),
            "covers up to 128 layers": cpu.MOST_LAYERS,
            "Blocks of 64 rows x 512 neurons": (constant("kTransposed", "inputs.hpp"), 8 * tiles.ALIGNMENT),
            "are N/16 apart": apart(),
        },
        "docs/explanation/latency.md": {
            "Deep networks (16 layers or more)": model.DEEP,
            "from 1,024 inputs on": model.MANY,
            "tiles of 16 or 32,": tiles.TILES[:2],
            "784-2048-2048-10 with 5 % nonzero weights (291,021 edges)": (*widths, dense, edges),
            "80 % of the inputs": zeros,
            "6 bytes of weights for every 32 inputs, 4 bytes": (STREAMED_BYTES, tiles.TILES[1], limits.EDGE_LOAD_BYTES),
        },
        "docs/explanation/onnx.md": {
            "at most 30 % nonzero": 100 * onnx_compile.PRUNED,
            "At least 1,024 weights": onnx_products.LEAST_WEIGHTS,
            "the 14 functions": len(re.findall("= *\n? *Entry<", (ROOT / "spdnn/kernels/cpu/onnx.hpp").read_text())),
            "from version 1.17 on": 1 + constant("kVersion", "onnx.hpp") / 100,
            "at most 20 % nonzero": 100 * onnx_trial.SURE,
            "differ by 0.1 % of": 100 * onnx_trial.WHOLE,
            "until the 95 % interval of the ratio excludes 1, or is narrower than 1 %": (
                *(100 * statistics.CONFIDENCE, 1, 100 * onnx_timing.ALIKE),
            ),
            "more than 10 % of the machine": 100 * limits.BUSY,
            "more than 1.25 times its fastest turn": turns.STEADY,
            '"session.force_spinning_stop", "1"': of_source(
                "benchmarks/two_sessions.py", r'"session.force_spinning_stop", "(\d)"'
            ),
            "with at least 1,024 entries": onnx_products.LEAST_WEIGHTS,
            "sets the 80, 90 or 95 %": of_source("benchmarks/real_models.py", r"SPARSITIES = \((\d+), (\d+), (\d+)\)"),
        },
        "docs/explanation/ranks.md": {"exceed 0.6 of the node's": WEIGHTS_SHARE},
        "docs/explanation/reductions.md": {
            "on four networks of 1,920 layers": challenge.MAX_LAYERS,
            "values of 64 neurons": cpu.SIGNED_NEURONS,
            "may cost 0.5 % of": 100 * inputs.SEARCH_AHEAD,
            "The limit is 3 % in": 100 * inputs.SEARCH_AHEAD_AGAIN,
            "fewer than 5 % of the rows": 100 * inputs.SETTLED,
            "more than 10 % of the rows": 100 * inputs.PAID,
            "each with up to 32 edges": challenge.NONZEROS_PER_NEURON,
            "1,920 layers have 16.9 (65536) to 22.6 times (1024)": (
                *(challenge.MAX_LAYERS, fewer_edges(65536), 65536, fewer_edges(1024), 1024),
            ),
        },
        "docs/explanation/task-graph.md": {"After 32 layers": JOINED},
        "docs/explanation/trust.md": {
            "(16 MiB at most)": official.KEPT_BYTES / 2**20,
            "wrong value in 65,536": challenge.WIDTHS[-1],
            "an active input that is not 32": challenge.YMAX,
            "after the values have reached 32": challenge.YMAX,
            "every last value is 32": challenge.YMAX,
            "while 3 % of": 100 * parts.PARTS_TIME,
        },
        "docs/explanation/verification.md": {
            "active input is 32, without tolerance": challenge.YMAX,
            "at least 32 of each": verdict.LEAST_SAMPLE,
            "fit 16 MiB of last rows": official.KEPT_BYTES / 2**20,
            "a clip at 32 or": challenge.YMAX,
            "3e38 + 3e38 - 3e38 - 3e38 overflows; with even and odd terms added separately, it is 0.": overflow(),
            "off by 16 times": oracle.FACTOR,
            "at most 10, or 1 % of": [verdict.LACKING, 100 * verdict.LACKING_SHARE],
            "of the first 120 layers": challenge.DEPTHS[0],
            "at most 2^25 inputs x edges": (2, np.log2(parts.PART_EDGES)),
            "Records of version 2 are": RUN_VERSION - 1,
            "The tolerance is 16 roundings": onnx_trial.ROUNDINGS * 2**24,
        },
        "docs/explanation/what-time-includes.md": {
            "loads at least 4 bytes": limits.EDGE_LOAD_BYTES,
            "more than 3 times faster": limits.LIMIT_FACTOR,
            "Measuring takes 0.1 s": measure.MACHINE_SECONDS,
            "at most 64 MiB a thread": ceilings.COPY_THREAD_BYTES / 2**20,
        },
    }


def faults(page: str, text: str, known: dict[str, object], options: set) -> Iterator[str]:
    """A sentence for each number that is wrong, or that no passage has.

    Args:
        text: of the page.
        known: its passages, as `passages` has them; options: as `options` has them.
    """
    told = " ".join(LEFT_OUT.sub("", text).split())
    covered: set[int] = set()
    for passage, numbers in (known | dict.fromkeys(UNCHECKED.get(page, {}))).items():
        if told.count(passage) != 1:
            yield f"{page}: {passage!r} is there {told.count(passage)} times"
            continue
        start = told.index(passage)
        covered |= set(range(start, start + len(passage)))
        printed = [match[0].replace(",", "") for match in NUMBER.finditer(told, start, start + len(passage))]
        if numbers is None:
            continue
        right = list(numbers) if isinstance(numbers, (tuple, list)) else [numbers]
        if len(printed) != len(right) or not all(map(is_rounded, printed, right)):
            yield f"{page}: {passage!r} should have {right}"
    for match in NUMBER.finditer(told):
        if match.start() not in covered:
            yield f"{page}: {match[0]} in {told[max(0, match.start() - 30) : match.end() + 30]!r} is in no passage"
    for name in sorted(set(NAME.findall(told)) - set(NAMES.get(page, "").split())):
        yield f"{page}: {name} is no name of {Path(__file__).name}"
    for option in sorted(set(OPTION.findall("".join(SHELL.findall(text)))) - options):
        yield f"{page}: nothing was measured with {' '.join(option)}"


def is_rounded(printed: str, number: float) -> bool:
    """Whether a number was rounded to what is printed."""
    if "e" in printed:
        return float(printed) == number
    return float(printed) == round(float(number), len(printed.partition(".")[2]))


def pages() -> dict[str, str]:
    names = ("README.md", "docs/results.md", "docs/artifact.md")
    paths = [*map(ROOT.joinpath, names), *sorted(ROOT.glob("docs/explanation/*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def every_fault(texts: dict[str, str]) -> list[str]:
    known, measured_with = passages(), options()
    return [fault for page, text in texts.items() for fault in faults(page, text, known.get(page, {}), measured_with)]


if __name__ == "__main__":
    if found := every_fault(pages()):
        sys.exit("\n".join(found))
