"""A measured inference on several ranks: inputs partitioned, weights once a node, results gathered on rank 0.

A repeat is timed from a barrier to a barrier, and is as long as its slowest rank's; the gathering of categories and
row sums is inside. Every rank tells how much of it was waiting for others and how much was communication.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.core.load import Load, LoadMonitor, load_of
from spdnn.core.resources import WEIGHTS_SHARE
from spdnn.core.result import Result
from spdnn.engines.base import STREAMED, Engine, Options, Prepared, Session, SharesWeights
from spdnn.engines.execute import BatchSession
from spdnn.engines.memory import SLACK, free_share, process_sentence, proportional_bytes, resident_bytes, shared_bytes
from spdnn.runs import measure
from spdnn.runs.measure import LoadedRun, RepeatSeconds, Samples, fits, repeat
from spdnn.runs.parts import run as run_parts
from spdnn.runs.ranks import partition as parts
from spdnn.runs.ranks.exchange import Log, RankExchange
from spdnn.runs.ranks.gather import gather_results, messages_cost, with_values
from spdnn.runs.ranks.shared import room, share_inputs, share_prepared
from spdnn.runs.records.distribution import Distribution, OneRank
from spdnn.runs.records.run_record import Measurement
from spdnn.runs.world import World


class Ranks:
    """A run on the ranks of a world, step by step; every rank takes the same steps.

    Args:
        engine: the same on each rank.
        memory: bytes that the ranks of one node may hold together, or None: most of what is free.
        settings: those of the engine; a rank has as many devices as they say.
        device: that all ranks use; None: each has its own (partition.device).

    Raises:
        Unavailable: the engine needs a device, and this rank has none (partition.device).
    """

    def __init__(
        self, world: World, engine: Engine, partition: str, memory: int | None, settings: Any = None,
        device: int | None = None,
    ):  # fmt: skip
        self.world, self.engine, self.partition = world, engine, partition
        self.memory, self.shared, self.weights, self.settings = memory, 0, "", settings
        self.device = self._own_device() if device is None else device

    def _own_device(self) -> int | None:
        world, engine = self.world, self.engine
        if not engine.on_device:
            return None
        identities = world.local.allgather(world.together(engine.device_identities))
        each = getattr(self.settings, "devices", 1)
        return world.together(parts.device, engine.name, world.node, identities, world.local_rank, each)

    def load(self, read: Callable[[Inputs | None], LoadedRun]) -> LoadedRun:
        """What `read` gives on the leader of each node, inputs and weights in memory that its ranks share.

        Where weights do not fit the node once, or the engine makes copies of its own, every rank reads and prepares
        them for itself. The source is the network's on leaders alone.

        Args:
            read: reads inputs and network, and prepares it; with the inputs as argument, it does not read these.
        """
        world = self.world
        # One rank of each node reads, for files and memory are those of the node.
        loaded = world.on_leaders(read, None)
        start = time.perf_counter()
        inputs, self.shared = share_inputs(world, loaded.inputs if world.leader else None)
        # Weights are shared where they fit beside the inputs, and the engine can compute on them in place.
        shares = False
        if world.leader and world.local_size > 1 and isinstance(self.engine, SharesWeights):
            shares = loaded.prepared.network.nbytes <= min(WEIGHTS_SHARE * self._node_bytes() - self.shared, room())
        shares = world.local.bcast(shares)
        # Otherwise every rank reads and prepares its own copy, of the shared inputs.
        once = shares or world.leader
        own = world.together(lambda: loaded if once else read(inputs)) or LoadedRun(inputs, None, 0.0, 0.0)
        prepared = own.prepared
        self.weights = "one copy a node" if shares else "a copy a rank"
        if shares:
            prepared = share_prepared(world, self.engine, prepared)
            self.shared += prepared.network.shared_nbytes
        # Sharing counts as reading: it is part of bringing weights and inputs into memory.
        read_seconds = own.read_seconds + (time.perf_counter() - start if once else 0.0)
        return own._replace(inputs=inputs, prepared=prepared, read_seconds=read_seconds)

    def _node_bytes(self) -> int:
        """Bytes that the ranks of this node may hold together."""
        return free_share() if self.memory is None else self.memory

    def options(self, threads: int, values: bool | np.ndarray) -> Options:
        """Of one rank: an even share of the memory that windows leave on the node.

        All ranks measure free memory before any takes of it.
        """
        world = self.world
        # A limit includes what the process holds already; free memory does not, so that is added.
        if self.memory is None:
            nbytes = free_share() // world.local_size + resident_bytes()
        else:
            nbytes = (self.memory - self.shared) // world.local_size
        world.local.Barrier()
        return Options(threads, max(1, nbytes), values, self.device, self.settings)

    def measure(
        self,
        loaded: LoadedRun,
        options: Options,
        repeats: int,
        again: int = 0,
        until: float | None = None,
        seed: int | None = None,
    ) -> tuple[Measurement | None, Result | None]:
        """As measure.measure, with a session on each rank and by the clock of rank 0, which alone gets what it returns:
        the measurement and the whole result.
        """
        world, prepared, inputs = self.world, loaded.prepared, loaded.inputs
        # Each rank opens a session on its part of the inputs; one without inputs has none, and takes part all the same.
        begun, watch = time.perf_counter(), LoadMonitor()
        numbers = parts.part(self.partition, inputs.count, world.size, world.rank)
        session, opened = measure.time_call(world.together, self._open, prepared, inputs.part(numbers), options)
        exchange = self._exchange(session, prepared)
        digests, own, result = [], None, None
        self.proportional = 0  # the largest proportional set size seen; 0 where the system has no such number

        # Decisions that end the repeats are made once, so that all ranks make the same number of them.
        def in_time(seconds: float) -> bool:
            return until is None or world.comm.bcast(fits(until, seconds))

        def once() -> RepeatSeconds:
            nonlocal own, result
            own, result, seconds = self._repeat(session, exchange, inputs)
            digests.append(result.digest if result else "")
            return seconds

        # Repeat; where another process took a node, all ranks repeat all of it.
        kept, load, passed_over = repeat(once, repeats, again, self._load, watch, in_time)
        # Before anything is kept: repeats that differ have no number.
        measure.check_repeats(self.engine, digests)
        if session is not None and result is not None:
            session.tell(result)
        if options.keep:
            result = with_values(world, result, own, options.keep)
        rank = self._of_rank(own, int(numbers.size), kept, prepared.network.depth)
        spent = loaded.read_seconds + opened, loaded.prepare_seconds
        reduced = (session.findings, session.span) if session is not None else None
        startup = session.startup_seconds if session is not None else 0.0
        # Ceilings and the cost of a message, with the sessions closed, by all ranks of a node together.
        session = None  # its buffers and weights
        if exchange:
            exchange.comm.Free()
        ceilings = measure.ceilings(self.engine, options, world.local_size, warn=world.rank == 0)
        messages = messages_cost(world)
        everyone = world.comm.gather((rank, reduced, self.shared, spent))
        if world.rank:
            return None, None
        # Rank 0 runs parts of the network alone, too, for the verdict.
        verification = 0.0
        if seed is not None:
            alone = self.engine, prepared, options, result, seed, sum(spent) + kept[0].inference
            result.parts, verification = measure.time_call(run_parts, *alone)
        # It writes the record; a repeat takes as long as its slowest rank.
        measurement = self._measurement(prepared, inputs, options, result, everyone, messages)
        total = opened + measurement.inference_seconds[0]
        return replace(
            measurement,
            machine=ceilings,
            load=load,
            passed_over=passed_over,
            excluded_seconds=time.perf_counter() - begun - total - verification,
            startup_seconds=startup,
            verification_seconds=verification,
        ), result

    def _open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session | None:
        try:
            return self.engine.open(prepared, inputs, options) if inputs.count else None
        except MemoryTooSmall as error:
            if self.device is not None or error.device:
                raise  # of this rank's device, or of what it holds besides one: its own sentence says
            ranks = self.world.local_size
            least = int(SLACK * (self.shared + ranks * error.least))
            what, who = f" for the {ranks} ranks of node {self.world.node}", f"{options.threads} threads a rank"
            raise MemoryTooSmall(process_sentence(self._node_bytes(), what, who, least, "about"), least) from error

    def _exchange(self, session: Session | None, prepared: Prepared) -> RankExchange | None:
        """What moves rows between the ranks that have inputs; None where there is nothing to move."""
        world = self.world
        comm = world.comm.Split(0 if session else world.mpi.UNDEFINED, world.rank)
        self.exchanges_rows = isinstance(session, BatchSession)
        # Without dead inputs all ranks keep their rows, and there is nothing to balance.
        rebalanced = self.partition == parts.REBALANCED and "dead" in prepared.reductions
        merging = "inputs" in prepared.reductions
        if not self.exchanges_rows or not (rebalanced or merging) or comm.size == 1:
            if session is not None:
                comm.Free()
            return None
        # All ranks meet between the same batches, so each makes as many as the one that needs most.
        session.least_batches = comm.allreduce(session.batches, world.mpi.MAX)
        return RankExchange(world, comm, rebalanced, merging)

    def _repeat(self, session, exchange, inputs: Inputs) -> tuple[Result | None, Result | None, RepeatSeconds]:
        """(this rank's result, on rank 0 the whole one, seconds) of one run."""
        world = self.world
        if exchange:
            exchange.begin()
        # All ranks begin together, so that one clock measures the whole.
        world.barrier()
        start = time.perf_counter()
        own = None
        if session is not None:
            own = session.run(exchange) if exchange else session.run()
        # The barrier separates waiting for the slowest rank from sending its results.
        waited = world.barrier()
        gathering = time.perf_counter()
        whole = gather_results(world, own, inputs.count)
        end = time.perf_counter()
        waited += world.barrier()
        self.log = log = exchange.log if exchange else Log()
        seconds = RepeatSeconds(time.perf_counter() - start, waited + log.waiting, end - gathering + log.communication)
        self.proportional = max(self.proportional, proportional_bytes() or 0)
        return own, whole, seconds

    def _load(self, watch: LoadMonitor, least: float) -> Load:
        """The load of the busiest node; every rank has the same."""
        used = self.world.comm.gather((self.world.node, watch.usage(least)))
        if used is not None:
            nodes = {node: load_of([load for where, load in used if where == node]) for node, _ in used}
            used = max(nodes.values(), key=lambda load: load.busy)
        return self.world.comm.bcast(used)

    def _of_rank(self, own: Result | None, inputs: int, repeats: list[RepeatSeconds], depth: int) -> OneRank:
        """This rank's entry in the record."""
        log = self.log
        return OneRank(
            host=self.world.node,
            inputs=inputs,
            inference_seconds=[one.inference for one in repeats],
            waiting_seconds=[one.waiting for one in repeats],
            communication_seconds=[one.communication for one in repeats],
            edges_computed=int(own.edges_computed) if own else 0,
            edges_from_exchange=int(log.edges_from_exchange or 0) if log.exchanges else None,
            survivors=own.survivors.tolist() if own else [0] * depth,
            rows_sent=log.sent,
            rows_received=log.received,
            peak_memory_bytes=measure.peak_memory() - shared_bytes(),
            proportional_memory_bytes=self.proportional or None,
        )

    def _measurement(self, prepared, inputs, options, result, everyone, messages) -> Measurement:
        """All ranks' figures together, on rank 0."""
        ranks, log = [rank for rank, *_ in everyone], self.log
        findings, spans = zip(*(reduced for _, reduced, *_ in everyone if reduced), strict=True)
        if log.exchanges:  # a rank without inputs takes part in no exchange
            ranks = [replace(rank, edges_from_exchange=rank.edges_from_exchange or 0) for rank in ranks]
        span = STREAMED if STREAMED in spans else spans[0]
        # Memory counts by node: what its ranks hold, and the windows that they share once.
        nodes = Counter()
        windows = dict(zip(self.world.nodes, (shared for *_, shared, _ in everyone), strict=True))
        for rank in ranks:
            nodes[rank.host] += rank.peak_memory_bytes
        together = {name: _together(name, findings) for name in findings[0]}
        # The slowest rank counts in every repeat.
        samples = Samples(
            *([max(seconds)] for seconds in zip(*(spent for *_, spent in everyone), strict=True)),
            np.max([rank.inference_seconds for rank in ranks], axis=0).tolist(),
        )
        return replace(
            measure.measurement_of(self.engine.name, prepared, inputs, options, together, span, result, samples),
            memory_limit_bytes=self.memory,
            peak_memory_bytes=max(own + windows[node] for node, own in nodes.items()),
            ranks=self.world.size,
            distribution=Distribution(
                partition=self.partition,
                weights="streamed by each rank" if span == STREAMED else self.weights,
                shared_bytes=max(windows.values()),
                **messages,
                exchanges=log.exchanges,
                told=self._sentence(log, prepared),
                rows_merged_across_ranks=log.merged,
                per_rank=ranks,
            ),
        )

    def _sentence(self, log: Log, prepared: Prepared) -> str:
        """Why rows were exchanged, or why not."""
        if self.partition != parts.REBALANCED:
            return f"partition {self.partition} exchanges no rows"
        if log.exchanges:
            rows = sum(exchange.rows for exchange in log.exchanges)
            return f"{rows} rows were exchanged, first before layer {log.exchanges[0].before_layer}"
        if not self.exchanges_rows:
            return f"no rows were exchanged: engine {self.engine.name} hands none over"
        if "dead" not in prepared.reductions:
            return "no rows were exchanged: without the reduction dead all ranks keep the same number"
        gain, cost, layer = log.best
        if not gain:
            return "no rows were exchanged: no rank ever had more work ahead than an even share"
        return (
            f"no rows were exchanged: the largest gain, {gain:.3g} edges of one rank before layer {layer + 1}, "
            f"was not above its cost of {cost:.3g}"
        )


def _together(name: str, findings: list[dict]) -> dict:
    """One reduction's findings in all sessions: rows of all, seconds and searches of the rank that spent most."""
    return {
        key: (sum if key == "rows_merged" else max)(notes[name][key] for notes in findings) for key in findings[0][name]
    }
