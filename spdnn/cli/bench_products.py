"""`spdnn bench sets`, `spmm` and `sddmm`: sparse operations for deep learning, ours and those of other libraries."""

from pathlib import Path

from spdnn.cli import arguments
from spdnn.cli.bench_shared import add_timing, command_of, run, writer
from spdnn.cli.terminal import say, show
from spdnn.core.errors import InputError
from spdnn.core.progress import bar
from spdnn.core.shown import plural

SETS = """\
problem sets (config/ops-problems.csv):
  a  layers of the pruned Transformer and ResNet-50 of the Deep Learning Matrix Collection: weights of 512 x 512 to
     33288 x 512 times 256 tokens, of 64 x 64 to 512 x 4608 times the pixels of an image; 50 to 98 % sparse
  b  square, 512 to 8192, times 128 columns; 75 to 95 % sparse
  c  4096 x 4096 with rows of very different lengths, times 128 columns; 80 to 95 % sparse
operations:
  spmm   C (M, N) = A (M, K) sparse, by rows, times B (K, N)
  sddmm  at each nonzero (i, j) of an M x K matrix, Q[i] . K[j] of N columns

A sample is one float32 call, with matrices in the program's own layout, handles made before, and operands in the
caches. All programs are timed alternately on the same threads. Each output is first compared with a float64 reference,
and every timed output must equal that output bit for bit. SciPy always runs one thread.
"""
FILE = "operations.jsonl"
MATRIX = """\
FILE is a sparse matrix: .smtx (positions alone; values are drawn), .npz (scipy.sparse.save_npz), .mtx (Matrix Market),
or .npy (dense; its zeros are left out).
"""


def add_sets(bench) -> None:
    bench.description = "Time every program on every problem of the sets; print a table and write records."
    bench.epilog = SETS
    bench.add_argument(
        "--set",
        action="append",
        dest="sets",
        metavar="S",
        help="problem set a, b or c; repeat the option for more (default: a)",
    )
    bench.add_argument(
        "--sparsity", metavar="LIST", help="sparsities in percent, joined by commas (default: those of each set)"
    )
    bench.add_argument(
        "--network",
        action="append",
        metavar="NAME",
        help="only problems of this network of the set: transformer, resnet-50...",
    )
    bench.add_argument("--phase", action="append", metavar="P", help="inference or training; sets the number of "
                       "columns of the dense matrix (default: inference)")  # fmt: skip
    bench.add_argument(
        "--operations", default="spmm,sddmm", metavar="LIST", help="operations, joined by commas (default: both)"
    )
    bench.add_argument("--models", action="append", default=[], metavar="NAME", help="whole model, sparse and dense: "
                       "transformer-P or mobilenet-P, where P is small, medium or paper")  # fmt: skip
    bench.add_argument("--dlmc", metavar="PATH", help="archive dlmc.tar.gz or its folder, whose matrices are set a, or "
                       "fetch: from the mirror or its address (default: random matrices)")  # fmt: skip
    bench.add_argument(
        "--sample", type=lambda text: None if text == "all" else arguments.positive(text), default=150, metavar="N",
        help="matrices to draw of DLMC, by --seed, a share from each model and sparsity, or all (default: 150)",
    )  # fmt: skip
    bench.add_argument(
        "--seed", type=lambda text: arguments.number(text, int, lambda n: 0 <= n < 1 << 63, "a whole number from 0"),
        default=0, metavar="N", help="random seed (default: 0)",
    )  # fmt: skip
    bench.add_argument("-o", "--output", metavar="FOLDER", help="folder for the records, " + FILE)
    _add_shared(bench)
    bench.set_defaults(run=_bench, reads=("dlmc",), writes=(f"output/{FILE}",))


def add_matrices(kinds) -> None:
    for name, columns in (("spmm", "columns of B"), ("sddmm", "columns of Q and K, the length of each dot product")):
        command = kinds.add_parser(
            name, help=f"time one {name} of your own matrix",
            description=f"Time one {name} of your own matrix with our kernels, other libraries and the dense product.",
            epilog=MATRIX,
        )  # fmt: skip
        command.add_argument("matrix", metavar="FILE", help="sparse matrix, see below")
        command.add_argument(
            "--columns", type=arguments.positive, default=256, metavar="N", help=f"{columns} (default: 256)"
        )
        command.add_argument("--record", metavar="FILE.jsonl", help="file to write the records to")
        _add_shared(command)
        command.set_defaults(run=_one, operation=name, reads=("matrix",), writes=("record",))


def _add_shared(command) -> None:
    command.add_argument(
        "--libraries", default="auto", metavar="LIST", type=lambda text: text if text == "auto" else text.split(","),
        help="other libraries, joined by commas: mkl, torch, scipy, numpy (sddmm alone), blas (NumPy's, dense), "
        "mkl-dense (default: all that are installed)",
    )  # fmt: skip
    add_timing(
        command, "number of threads of each program (default: all cores)", 1.0,
        "least seconds to measure each problem, with at least 3 rounds",
    )  # fmt: skip


def _bench(args) -> None:
    from spdnn.bench import models
    from spdnn.bench.libraries.registry import libraries_here

    settings = {
        "sets": dict.fromkeys(args.sets or ["a"], _percents(args.sparsity)), "networks": args.network,
        "phases": args.phase or ["inference"], "operations": args.operations.split(","), "models": args.models,
        "seed": args.seed, "seconds": args.seconds, "sample": args.sample,
    }  # fmt: skip
    target = arguments.file_in(args.output, FILE)
    libraries, reasons = libraries_here(args.libraries)
    threads = arguments.threads(args.threads)
    count, cases = models.products_of(settings, args.dlmc)
    command = command_of(
        "sets", set=args.sets or "a", network=args.network, phase=args.phase, sparsity=args.sparsity, dlmc=args.dlmc,
        sample=(args.sample or "all") if args.dlmc else None, models=args.models, operations=args.operations,
        seed=args.seed, threads=threads, seconds=f"{args.seconds:g}", libraries=",".join(libraries), o=".",
    )  # fmt: skip
    what = f"{plural(count, 'problem')}, {plural(threads, 'thread')}"
    print(f"{what}; times are medians, ratios how many times as long as ours", flush=True)
    groups = models.compare(settings | {"threads": threads, "libraries": libraries}, command, cases)
    run(bar(groups, "compare", count, "problem"), None, writer(target), reasons, _show)


def _one(args) -> None:
    from spdnn.bench import products
    from spdnn.bench.contest import ComparisonSettings
    from spdnn.bench.libraries.registry import libraries_here

    libraries, reasons = libraries_here(args.libraries)
    threads = arguments.threads(args.threads)
    command = command_of(
        args.operation, args.matrix, columns=args.columns, threads=threads, seconds=f"{args.seconds:g}",
        libraries=",".join(libraries),
    )  # fmt: skip
    matrix = products.read_matrix(args.matrix)
    comparison = ComparisonSettings(threads, libraries, args.seconds, command)
    records = products.compare_own(matrix, Path(args.matrix).name, args.operation, args.columns, comparison)
    run([(records, {})], None, writer(args.record), reasons, _show)


def _show(records: list) -> None:
    """By operation every problem, and geometric means by set and sparsity; models; of one problem, its programs."""
    from spdnn.report import operations
    from spdnn.report.common.run_rows import group_by

    problems = operations.compare_problems(record for record in records if record.operation != "model")
    tables = []
    for name, some in group_by(problems, lambda one: one.operation).items():
        levels = group_by(some, lambda one: (one.problem.set, one.percent)).values()
        tables.append(operations.PROBLEMS.of(some, title=operations.NAMES[name]))
        tables += [operations.MEANS.of(list(map(operations.Means, levels)), title="Geometric means")] * (len(some) > 1)
    tables.append(operations.MODELS.of(operations.models_of(records)))
    tables += [operations.CALLS.of(records)] * (len(problems) == 1)
    for rows in tables:
        if rows.rows:
            say(["", rows.title or rows.table.title])
            show(rows.table, rows.rows)


def _percents(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--sparsity {text!r}: percents joined by commas, such as 80,90,95") from None
