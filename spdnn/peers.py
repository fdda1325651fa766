"""Peers in the same run: other libraries and our kernels on the same problem, timed in turn and each verified.

Two comparisons. One fused layer on dense features, every program's layouts made outside the clock; and a whole network,
every program through the contract of the engines. What is timed in turn, again and again, is slowed alike by whatever
else the machine does, so pairs of samples give ratios that can be trusted where single times cannot. An output is
verified before its program is timed, and every timed output must equal the verified one to the bit.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn import kernels, layouts, measure, verify
from spdnn.engines import PEERS, Engine, Options, Prepared, engine
from spdnn.engines.base import Session
from spdnn.engines.peers.base import Library, bound, summarised
from spdnn.errors import InputError, SpdnnError, Unsuitable
from spdnn.features import Inputs, Result
from spdnn.files import check_ended
from spdnn.network import MemoryNetwork, Network
from spdnn.records import Interval, ratios, write_record
from spdnn.reduce import parse
from spdnn.sources.radixnet import RadixNet

ONE_LAYER = "one layer, features in the engine's layout"
OURS = "cpu"
DEPTH = 20  # of the network that a layer is taken from
FEATURE_BYTES = 1 << 26  # of one layer's features, by default: past every cache
LEAST_ROUNDS = 3
SEED = 0  # of the random features


def installed(names: str | Sequence[str] = "all") -> tuple[list[str], dict[str, str]]:
    """(the peers to run, why each of the others cannot run here).

    Args:
        names: 'all' that are installed, or a list of names.

    Raises:
        InputError: a name that is no peer, or a name twice.
        Unavailable: a named one is not installed.
    """
    if names != "all":
        names = list(names)
        for name in names:
            if name not in PEERS:
                raise InputError(f"library {name!r} is not known: it must be one of {', '.join(PEERS)}")
            engine(name)
        if len(set(names)) < len(names):
            raise InputError(f"library {max(names, key=names.count)!r} is named twice")
        return names, {}
    reasons = {name: engine(name, usable=False).missing() for name in PEERS}
    return [name for name in PEERS if not reasons[name]], {name: reason for name, reason in reasons.items() if reason}


class _Ours:
    """Our kernel on one layer: features tiled already."""

    def __init__(self, layer, rows: np.ndarray, threads: int):
        self.level = kernels.level()
        self.count, self.outputs, self.threads = len(rows), layer.outputs, threads
        self.tile = layouts.best_tile(self.level, self.count)
        self.tiles = layouts.tiles_of(self.count, self.tile)
        self.bound = layouts.bind(layer)
        self.source = layouts.buffer(self.count, layer.inputs, self.tile)
        padded = np.zeros((self.tiles * self.tile, layer.inputs), np.float32)
        padded[: self.count] = rows
        self.source[:] = padded.reshape(self.tiles, self.tile, -1).transpose(0, 2, 1).reshape(-1)
        self.target = layouts.buffer(self.count, layer.outputs, self.tile)
        self.target.fill(0)  # the pages are touched here, not on the clock
        self.edges = self.tiles * self.tile * layer.edges
        self.notes = {"instruction_set": self.level.name, "tile": self.tile}

    def run(self) -> np.ndarray:
        active = np.zeros(self.tiles, np.uint64)
        self.level.layer(self.bound, self.source, self.target, self.tiles, self.tile, active, self.threads)
        return self.target

    def dense(self, out: np.ndarray) -> np.ndarray:
        rows = np.empty((self.count, self.outputs), np.float32)
        self.level.untile(out, rows, self.tile, self.threads)
        return rows


class _Theirs:
    """A library on one layer; the array of the run before is offered to it again."""

    def __init__(self, library: Library, layer, rows: np.ndarray, threads: int):
        self.library, self.spare = library, None
        self.notes = library.start(threads)
        bound(layer, float(rows.max()), 0, library.name)
        self.weights, self.features = library.weights(layer), library.features(rows)
        self.edges = library.work(self.features, self.weights, len(rows))

    def run(self) -> Any:
        self.spare = self.library.step(self.features, self.weights, self.spare)
        return self.spare

    def dense(self, out: Any) -> np.ndarray:
        return self.library.dense(out)


def compare_layers(
    widths: Iterable[int],
    count: int | None,
    threads: int,
    seconds: float,
    libraries: Sequence[str],
    command: str,
    identity: str | None = None,
) -> list[dict]:
    """Records of one layer on dense features, ours first, at each width.

    Args:
        widths: of RadiX-Nets; the layer is the first that a permutation reaches.
        count: inputs; by default as many as FEATURE_BYTES hold.
        seconds: of timing at each width, at least; and at least LEAST_ROUNDS rounds.
        libraries: names of peers.
        command: that makes these records.
        identity: of the comparison (16 hexadecimal digits), when it goes on in compare_networks.

    Raises:
        InputError: a width that the formula does not define.
        SpdnnError: an output is wrong, or changed while it was timed.
    """
    identity, found = identity or new_identity(), []
    for neurons in widths:
        formula = RadixNet(neurons, DEPTH)
        k = formula.block
        network = MemoryNetwork([formula.layer(k)], {**formula.description, "layer": k + 1})
        size = count or max(layouts.TILES[-1], FEATURE_BYTES // (4 * neurons))
        rows = np.random.default_rng(SEED).random((size, neurons), dtype=np.float32)
        inputs = Inputs(rows, description={"source": "random", "seed": SEED, "low": 0.0, "high": 1.0})
        found += _one_width(network, inputs, threads, seconds, libraries, command, identity)
    return found


def _one_width(
    network: Network, inputs: Inputs, threads: int, seconds: float, libraries: Sequence[str], command, identity
) -> list[dict]:
    layer, rows = network.layer(0), inputs.data
    truth = verify.oracle(network, inputs)
    programs, spent = {}, {}
    for name in (OURS, *libraries):
        make = (lambda: _Ours(layer, rows, threads)) if name == OURS else (
            lambda name=name: _Theirs(engine(name).library, layer, rows, threads)
        )  # fmt: skip
        programs[name], spent[name] = measure.timed(make)
    results = {name: _layer_result(program, inputs.count) for name, program in programs.items()}
    verdicts = {name: verify.judge(result, truth) for name, result in results.items()}
    samples, digests = {name: [] for name in programs}, {name: [] for name in programs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[OURS]) < LEAST_ROUNDS:
        check_ended()
        for name, program in programs.items():
            out, took = measure.timed(program.run)
            samples[name].append(took)
            digests[name].append(_digest(program.dense(out)))
    records = []
    for name, program in programs.items():
        _same(name, digests[name], results[name].digest)
        measurement = measure.Measurement(
            problem=measure.problem(network, inputs),
            engine={"name": name, "notes": program.notes},
            reductions={"requested": [], "found": {}},
            threads=threads,
            memory_limit_bytes=None,
            samples={
                "read_seconds": [0.0],
                "prepare_seconds": [spent[name]],
                "inference_seconds": samples[name],
            },
            span=ONE_LAYER,
            digests=digests[name],
            peak_memory_bytes=measure.peak_memory(),
        )
        case = f"peers-layer-{network.width}.random-{inputs.count}.{name}.t{threads}"
        records.append(_record(case, measurement, results[name], verdicts[name], command, identity))
    return records


def _layer_result(program: _Ours | _Theirs, count: int) -> Result:
    rows = program.dense(program.run())
    alive = np.flatnonzero(rows.any(axis=1))
    result = summarised(count, alive, rows[alive], np.array([alive.size]), program.edges, False, program.notes)
    result.digest = _digest(rows)
    return result


def _digest(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


@dataclass
class _Runner:
    """An engine that is ready to run a whole network."""

    engine: Engine
    prepared: Prepared
    session: Session
    read_seconds: float
    prepare_seconds: float


def compare_networks(
    network: Network,
    inputs: Inputs,
    libraries: Sequence[str],
    options: Options,
    repeats: int,
    command: str,
    name: str,
    identity: str | None = None,
) -> tuple[list[dict], dict[str, str]]:
    """Records of a whole network in our engine and in each library, all with all reductions that they offer.

    Args:
        repeats: rounds in which each runs once, after a first run that is verified and not timed.
        name: of network and inputs, as cases are named.
        libraries, command, identity: see compare_layers.

    Returns:
        the records, ours first; and a sentence for each library that cannot run this network.

    Raises:
        InputError: inputs that do not fit, or too little memory.
        SpdnnError: an output is wrong, or changed while it was timed.
    """
    identity, refused, runners = identity or new_identity(), {}, {}
    for engine_name in (OURS, *libraries):
        try:
            runners[engine_name] = _opened(engine_name, network, inputs, options)
        except Unsuitable as error:
            refused[engine_name] = str(error)
    results = {key: runner.session.run() for key, runner in runners.items()}
    truth = measure.truth_for(network, inputs, results[OURS])
    verdicts = {key: verify.judge(result, truth) for key, result in results.items()}
    samples, digests = {key: [] for key in runners}, {key: [] for key in runners}
    for _ in range(repeats):
        for key, runner in runners.items():
            check_ended()
            result, took = measure.timed(runner.session.run)
            samples[key].append(took)
            digests[key].append(result.digest)
    records = []
    for key, runner in runners.items():
        _same(key, digests[key], results[key].digest)
        spent = {
            "read_seconds": [runner.read_seconds],
            "prepare_seconds": [runner.prepare_seconds],
            "inference_seconds": samples[key],
        }
        measurement = measure.measured(
            key, runner.prepared, inputs, options, runner.session, results[key], spent, digests[key]
        )
        case = f"peers-{name}.{key}.t{options.threads}"
        records.append(_record(case, measurement, results[key], verdicts[key], command, identity))
    return records, refused


def _opened(name: str, network: Network, inputs: Inputs, options: Options) -> _Runner:
    runner = engine(name)
    prepared, spent = measure.timed(runner.prepare, network, parse("all", runner.offers))
    session, read = measure.timed(runner.open, prepared, inputs, options)
    return _Runner(runner, prepared, session, read, spent)


def _same(name: str, digests: Sequence[str], verified: str) -> None:
    if set(digests) != {verified}:
        raise SpdnnError(f"engine {name} gave an output, while it was timed, that is not the one that was verified")


def _record(case: str, measurement, result: Result, verdict: dict, command: str, identity: str) -> dict:
    record = measure.record(case, measurement, measure.summary(result), verdict, command)
    return {**record, "comparison": identity}


class Row(NamedTuple):
    """One program in the table of a comparison: medians, and how many times as long as ours it took."""

    name: str
    seconds: float
    rate: float
    ratio: Interval
    verdict: str


def rows(found: Sequence[dict]) -> list[Row]:
    """The rows of one problem's records, of which ours is the first."""
    ours = found[0]["samples"]["inference_seconds"]
    return [
        Row(
            record["engine"]["name"],
            float(np.median(record["samples"]["inference_seconds"])),
            record["edges_per_second"]["median"],
            ratios(ours, record["samples"]["inference_seconds"]),
            "pass",  # without one there is no record
        )
        for record in found
    ]


def write_records(folder: str | Path, records: Iterable[dict]) -> None:
    """Write each record to `folder` (made when it is absent) as CASE.json."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for record in records:
        write_record(Path(folder) / f"{record['case']}.json", record)


def compare(settings: dict, inputs: Inputs | None, command: str) -> list[dict]:
    """The records that the key `peers` of a configuration asks for.

    Args:
        settings: widths, count, seconds, network, libraries, threads, as the configuration's schema has them.
        inputs: of the network; its count is applied here. None without a network.
        command: see compare_layers.

    Raises:
        InputError, Unavailable: see installed, compare_layers and compare_networks.
    """
    names = settings["libraries"]
    libraries, _ = installed("all" if names == "auto" else names)
    threads, whole, identity = settings["threads"], settings["network"], new_identity()
    records = compare_layers(
        settings["widths"], settings["count"], threads, settings["seconds"], libraries, command, identity
    )
    if whole:
        network = RadixNet(whole["neurons"], whole["layers"])
        inputs = inputs if whole["count"] is None else inputs.counted(whole["count"])
        name = f"radixnet-{network.neurons}-{network.depth}.{whole['inputs']}-{inputs.count}"
        records += compare_networks(
            network, inputs, libraries, Options(threads), whole["repeats"], command, name, identity
        )[0]
    return records


def new_identity() -> str:
    """A name for one comparison: 16 hexadecimal digits."""
    return secrets.token_hex(8)
