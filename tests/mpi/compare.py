"""Run under mpiexec by test_ranks.py: inference on these ranks against the same on one, in one process.

    mpiexec -n R python compare.py [--every] [--hard] [--only PROBLEM,...] ENGINE... [, ...]

Further comparisons follow a comma. Prints `same N...` on rank 0 when all N of one were. --every: each partition with
each set of reductions; else those that `covered` says. --hard: some of them with equal hashes of all rows, so that only
their values tell equal ones, and some in small batches; a line for each.
"""

import argparse
import contextlib
import faulthandler
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from spdnn import infer
from spdnn.core.errors import Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.validation import builtins
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.rows import TiledRows
from spdnn.engines.reductions import inputs as identical
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.spgemm import schedule as spgemm_plan
from spdnn.engines.spgemm.rows import SparseRows
from spdnn.formats.radixnet import RadixNet
from spdnn.runs import measure
from spdnn.runs.measure import LoadedRun
from spdnn.runs.ranks import exchange as row_exchange
from spdnn.runs.ranks import gather
from spdnn.runs.ranks.partition import PARTITIONS
from spdnn.runs.ranks.run import Ranks
from spdnn.runs.world import world

sys.path.append(str(Path(__file__).parents[1] / "engines"))
from engine_cases import random_network, rows

EXACT = ("cpu", "tiled", "csr", "spgemm", "reference")  # a row's bits do not depend on what other rows there are


def problems():
    """(name, network, inputs): survivors uneven, none on some ranks, rows revived, fewer inputs than ranks..."""
    official = RadixNet(1024, 16)
    # Ever more ones: an order that leaves the survivors to the last ranks.
    counts = {"sorted": (240, 0.05, 0.45), "dead on most ranks": (113, 0, 0.25), "few_inputs": (3, 0.3, 0.4)}
    for seed, (name, (count, *ones)) in enumerate((counts | {"one input": (1, 0.4, 0.4)}).items(), 1):
        yield name, official, rows(count, 1024, seed, "bits", np.linspace(*ones, count)[:, None])
    rng = np.random.default_rng(5)
    dense = rng.normal(size=(90, 50)).astype(np.float32)
    yield "dense", random_network([50, 70, 30, 40, 20], 0.2, 6, -0.2), Inputs.from_array(dense)
    yield "revived", random_network([50, 60, 50, 40], 0.2, 7, 0.3, 4.0), Inputs.from_array(dense)
    yield "signed", random_network([50, 60, 50, 40], 0.2, 8, -0.1, None, "none"), Inputs.from_array(dense)
    twins = Inputs.from_array(sp.csr_array(np.repeat(dense[:8], 12, axis=0) * (rng.random((96, 1)) < 0.9)))
    yield "twins", random_network([50, 64, 64, 64, 64], 0.2, 9, -0.05), twins


def covered(what, last):
    """The partitions that tell something of this problem beside others; `last`: with all that the engine offers."""
    some = {
        "rebalanced": last or what in ("sorted", "few_inputs", "revived"),
        "static": last and what in ("sorted", "one input", "twins"),
        "cyclic": last and what in ("sorted", "dead on most ranks", "few_inputs", "twins"),
    }
    return [partition for partition in PARTITIONS if some[partition]]


def run(ranks, name, reductions, network, inputs, partitions):
    """(partition, measurement, result) of each partition."""
    runner = engine(name)
    args = parse_reductions(reductions, runner.offers)
    several = Ranks(ranks, runner, "static", None)
    loaded = several.load(lambda _: LoadedRun(inputs, runner.prepare(network, args), 0.0, 0.0))
    options = several.options(1, True)
    for several.partition in partitions:
        measured, result = several.measure(loaded, options, 2)
        yield several.partition, measured, result


def check(what, name, got, told, alone):
    np.testing.assert_array_equal(got.alive, alone.alive, what)
    np.testing.assert_array_equal(got.survivors, alone.survivors, what)
    assert got.inputs == alone.inputs, what
    if name in EXACT:
        assert got.digest == alone.digest, what
        np.testing.assert_array_equal(got.values, alone.values, what)
        np.testing.assert_allclose(got.row_projection, alone.row_projection, 1e-12, 1e-12, err_msg=str(what))
    else:
        np.testing.assert_allclose(got.values, alone.values, 1e-5, 1e-5, err_msg=str(what))
    distribution = builtins(told.distribution)
    per_rank = distribution["per_rank"]
    assert sum(one["edges_computed"] for one in per_rank) == got.edges_computed, what
    assert sum(one["rows_sent"] for one in per_rank) == sum(one["rows_received"] for one in per_rank), what
    np.testing.assert_array_equal(np.sum([one["survivors"] for one in per_rank], axis=0), got.survivors, what)


def compared(ranks, engines, only=None, every=False):
    """Compare all problems, or `only` some, on some engines, and print how many were the same."""
    done = moved = merged = 0
    for name in engines:
        offered = len(engine(name).offers)
        offers = ["none", *(["dead"] if offered > 1 else []), *(["all"] if offered else [])]
        for what, network, inputs in problems():
            for reductions in offers if not only or what in only else ():
                partitions = PARTITIONS if every else covered(what, reductions == offers[-1])
                try:
                    engine(name).prepare(network, parse_reductions(reductions, engine(name).offers))
                except Unsuitable:
                    continue
                if not partitions:
                    continue
                alone = infer(network, inputs, name, reductions, 1, values=True) if ranks.rank == 0 else None
                for partition, told, got in run(ranks, name, reductions, network, inputs, partitions):
                    if ranks.rank == 0:
                        check((name, what, reductions, partition, ranks.size), name, got, told, alone)
                        done += 1
                        moved += sum(exchange.rows for exchange in told.distribution.exchanges)
                        merged += told.distribution.rows_merged_across_ranks
    if ranks.rank == 0:
        print(f"same {done}, {moved} rows moved, {merged} merged across ranks")


def main(arguments):
    parser = argparse.ArgumentParser()
    for name in ("--every", "--hard"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("engines", nargs="+")
    given, ranks = parser.parse_args(arguments), world()
    row_exchange.EXCHANGE = row_exchange.MOVE = 0  # so that rows move in problems as small as these
    plan.SEARCH, plan.SEARCH_ROW, identical.SETTLED = 0, 0, 1.0  # and equal ones are searched for
    measure.ceilings, gather.TRIES, gather.LARGE = lambda *_, **__: None, 1, 8  # nothing here is about time
    if not given.hard:
        compared(ranks, given.engines, given.only, given.every)
    else:
        with contextlib.ExitStack() as patched:
            for kind in (TiledRows, SparseRows):
                patched.enter_context(patch.object(kind, "hashes", lambda self: np.zeros(self.count, np.uint64)))
            compared(ranks, given.engines, ("sorted", "twins"))
        few = patch.object(plan, "batches", lambda *_: (64, False))
        with few, patch.object(spgemm_plan, "batches", lambda network, inputs, options, panel, shared: (64, shared)):
            compared(ranks, given.engines, ("sorted",))


if __name__ == "__main__":
    faulthandler.dump_traceback_later(480, exit=True)
    try:
        for arguments in " ".join(sys.argv[1:]).split(" , "):
            main(arguments.split())
    except BaseException:
        import traceback

        traceback.print_exc()
        world().abort(1)
