"""The task graph on CUDA devices, on the shim: every schedule in every order of streams gives the bits of the engine
`cuda`; a missing event does not; no more memory is taken than was promised."""

import itertools
import weakref
from collections import Counter
from functools import cache
from unittest.mock import Mock

import numpy as np
import pytest
from cuda_cases import exact_network, repeated
from engine_cases import assert_equal, assert_keeps_some, rows
from shim import ShimDevice
from shim_streams import Node

from spdnn.api import infer
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.limits import Machine
from spdnn.core.network import from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.base import Options
from spdnn.engines.cuda import schedule
from spdnn.engines.cuda.engine import CudaEngine
from spdnn.engines.cuda.session import CudaSession
from spdnn.engines.reductions import dead
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph import decomposition
from spdnn.engines.taskgraph.cuda import probe as cuda_probe
from spdnn.engines.taskgraph.cuda import session as session_module
from spdnn.engines.taskgraph.cuda.run import CudaGraphRun, copies_hidden
from spdnn.engines.taskgraph.cuda.session import CudaGraphSession
from spdnn.engines.taskgraph.graph import Kind
from spdnn.engines.taskgraph.settings import SCHEDULES
from spdnn.engines.taskgraph.settings import TaskgraphSettings as Settings
from spdnn.engines.taskgraph.timeline import Span
from spdnn.formats.digits import digits_inputs
from spdnn.formats.radixnet import RadixNet
from tests.engines.taskgraph.graph_check import wrong

ENGINE = engine("taskgraph-cuda", usable=False)


@pytest.fixture(autouse=True)
def short_stages(set_all, little_measured):
    """Several stages in networks of few layers, and looks for identical rows in them; little is measured."""
    set_all(dead, PASS_LENGTHS=((2, 1), (6, 2)), LONGEST_PASS=3)
    set_all(decomposition, JOINED=4)
    set_all(schedule, AHEAD=0)


def devices_of(count, order=0, **arguments):
    node = Node(order, arguments.pop("peers", True))
    return [ShimDevice(order, node=node, **arguments) for _ in range(count)]


def opened(network, inputs, request, reductions="none", order=0, kind="csr", values=False, **arguments):
    prepared = ENGINE.prepare(network, parse_reductions(reductions, ENGINE.offers))
    devices = devices_of(request.devices, order, **arguments)
    return CudaGraphSession(devices, prepared, inputs, Options(1, values=values, settings=request), kind)


def expected(network, inputs, reductions="none", kind="csr"):
    prepared = ENGINE.prepare(network, parse_reductions(reductions, ENGINE.offers))
    return CudaSession(ShimDevice(0), prepared, inputs, Options(1), kind).run()


@cache
def deep():
    """A network of 11 layers and several widths, in which rows die, and inputs some of which are equal."""
    rng = np.random.default_rng(0)
    network = exact_network(rng, [48, 64, 40, *[56] * 9], 0.2, (-3, 1), 8.0)
    return network, repeated(rng, rng.integers(0, 3, (60, 48)), 230)


@cache
def deep_result(reductions="none"):
    return expected(*deep(), reductions)


def by_default(chosen, *rest):
    """Parameters; all but `chosen` are of the full set."""
    return [*chosen, *(pytest.param(*given, marks=pytest.mark.full("ladder")) for given in rest if given not in chosen)]


REDUCTIONS = ("none", "dead,inputs", "all")
# Each schedule with each number of devices and each of the reductions, and each of these with each other; and what
# can be asked for besides.
SQUARE = [
    *((Settings(name, 1 + (i + j) % 3, batches=4), REDUCTIONS[i])
      for j, name in enumerate(SCHEDULES) for i in range(3)),
    *((one, "dead,inputs") for one in (
        Settings("graph", 2, pipeline=2, batches=5, buffers=2), Settings("graph", 1, batches=3, buffers=3),
        Settings("graph", 3), Settings("stream", 4, pipeline=2, batches=5, buffers=3),
        Settings("pipeline", 4, pipeline=4, batches=7, buffers=2), Settings("resident", 4, pipeline=2, batches=7),
        Settings(devices=2),
    )),
]  # fmt: skip
CUBE = [
    *((Settings(*one, batches=4), which) for *one, which in itertools.product(SCHEDULES, (1, 2, 3), REDUCTIONS)),
    *((Settings(*one), "dead,inputs") for one in itertools.product(SCHEDULES, (1, 2, 3))),
    (Settings("graph", 4, pipeline=2, batches=6), "dead,inputs"), (Settings("graph", 2, batches=5, buffers=2), "all"),
    (Settings("stream", 2, pipeline=2, batches=3), "dead,inputs"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "reductions"), by_default(SQUARE, *CUBE), ids=str)
def test_every_schedule_gives_the_same_bits_in_every_order(asked, reductions):
    network, inputs = deep()
    for order, peers in enumerate((True, False, True, False)):
        session = opened(network, inputs, asked, reductions, order, peers=peers)
        for _ in range(2):  # and the second run begins as the first did
            got = session.run()
            assert_equal(got, deep_result(reductions))
        assert got.notes["batches"] == len(got.notes["groups"]) == session.batches
        assert got.notes["schedule"] == (session.cut.schedule if asked.schedule == "auto" else asked.schedule)
        way = "from device to device" if peers else "through the host"
        assert got.notes["moves"] == (way if got.notes["pipeline"] > 1 else None)
        # What has run is a sound graph, with the batches that devices drew.
        assert wrong(session.cut, session._last_run.execution.graph.tasks) == []


def test_progress_is_told_of_batches_that_were_issued(monkeypatch, capsys):
    network, inputs = deep()
    session = opened(network, inputs, Settings("stream", 1, batches=4), "dead")
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    capsys.readouterr()
    assert_equal(session.run(), deep_result("dead"))
    lines = [line for line in capsys.readouterr().err.splitlines() if "issued batch" in line]
    assert [line.partition("| ")[2].partition(" [")[0] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]


@pytest.mark.parametrize(
    ("kind", "given"),
    by_default(
        [(None, "csr"), ("ell", "dense"), ("staged", "bits"), ("persistent", "csr")],
        *itertools.product((None, "ell", "staged", "persistent"), ("bits", "dense", "csr")),
    ),
)
def test_kernels_and_inputs_of_every_kind(monkeypatch, kind, given):
    """With weights in buffers that are filled again and again, in which the persistent kernel finds them by a table."""
    monkeypatch.setattr(schedule, "EARLY", 2)
    network = exact_network(np.random.default_rng(2), [70, 64, *[40] * 8], 0.2, (-2, 2), 4.0, single=0.25)
    inputs = rows(130, 70, kind=given)
    inputs = inputs if given == "bits" else Inputs.from_array(np.round(4 * inputs.dense(np.arange(130))) / 4)
    told = reference.infer(network, inputs, values=True)
    for name, count in (("stream", 1), ("pipeline", 2), ("graph", 2)):
        session = opened(network, inputs, Settings(name, count, batches=3, buffers=2), "dead,inputs", 2, kind, True)
        assert_equal(session.run(), told, to_the_bit=False)


@cache
def official():
    network, inputs = RadixNet(1024, 12), digits_inputs(1024, 256)
    return network, inputs, reference.infer(network, inputs)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_first_layers_of_an_official_network(monkeypatch, name):
    monkeypatch.setattr(schedule, "AHEAD", 96)
    network, inputs, told = official()
    got = opened(network, inputs, Settings(name, 2, batches=3), "all", 2, "staged").run()
    np.testing.assert_array_equal(got.categories, told.categories)
    np.testing.assert_array_equal(got.survivors, told.survivors)
    np.testing.assert_allclose(got.row_sum, told.row_sum, rtol=1e-3)


def regular(rng, depth, width=32, degree=8):
    """Layers in which all is as large as in the others: a wrong one is read without harm."""
    matrices = []
    for _ in range(depth):
        matrix = np.zeros((width, width), np.float32)
        for column in range(width):
            matrix[rng.permutation(width)[:degree], column] = rng.integers(1, 5, degree) / 64
        matrices.append(matrix)
    return from_matrices(matrices, 0.0, 32.0, last="relu")


EDGES = {
    "weights before they are there": ("stream", 1, (Kind.COPY, Kind.LAYER)),
    "weights over those that are read": ("stream", 1, (Kind.LAYER, Kind.COPY)),
    "rows before they are there": ("pipeline", 2, (Kind.MOVE, Kind.LAYER)),
    "rows over those that are read": ("pipeline", 2, (Kind.COLLECT, Kind.MOVE)),
    "rows over those that are moved": ("pipeline", 3, (Kind.MOVE, Kind.MOVE)),
}


@pytest.mark.parametrize("edge", EDGES)
def test_a_missing_event_changes_what_comes_out(monkeypatch, set_all, edge):
    """One kind of edge is left out, after a run that filled all memory with what is harmless to read. Some order shows
    it, and not the order of issue."""
    set_all(dead, PASS_LENGTHS=(), LONGEST_PASS=1)
    rng = np.random.default_rng(1)
    network, inputs = regular(rng, 9), rows(192, 32, kind="dense")
    inputs = Inputs.from_array(abs(inputs.data))
    told = expected(network, inputs)
    name, count, dropped = EDGES[edge]
    kept = CudaGraphRun._wait

    def wait(self, owner, task, before):
        if (before.kind, task.kind) != dropped:
            kept(self, owner, task, before)

    for order in range(10):
        session = opened(network, inputs, Settings(name, count, batches=6), order=order)
        assert_equal(session.run(), told)
        with monkeypatch.context() as patch:
            patch.setattr(CudaGraphRun, "_wait", wait)
            try:
                differs = session.run().digest != told.digest
            except IndexError:  # a row's number that was read too early
                differs = True
        if differs:
            break
    assert differs
    assert order


def test_rows_are_counted_before_they_move(monkeypatch):
    network, inputs = deep()
    session = opened(network, inputs, Settings("pipeline", 2, batches=4), "dead", order=1)
    monkeypatch.setattr(CudaGraphRun, "_count_known", lambda self, task: True)
    with pytest.raises((SpdnnError, ValueError, AssertionError)):
        assert_equal(session.run(), deep_result("dead"))


def test_a_graph_is_captured_once_for_batches_of_all_sizes():
    network, inputs = deep()
    session = opened(network, inputs, Settings("graph", 2, batches=4, join=False), "dead,inputs")
    captured = dict(session.graphs.captured)
    assert len(captured) == 2  # one for each device
    sizes = [last - first for first, last in map(session.cut.members, range(session.batches))]
    assert len(set(sizes)) == 2
    before = [device.device.launches.total() for device in session.devices]
    session.run()
    assert session.graphs.captured == captured
    assert all(one.device.launches.total() > count for one, count in zip(session.devices, before, strict=True))
    streamed = opened(network, inputs, Settings("graph", 1, batches=5, buffers=2))
    assert len(streamed.graphs.captured) == 1  # every batch brings all weights again


@pytest.mark.parametrize("name", ["resident", "stream", "graph"])
@pytest.mark.parametrize("few", [True, False])
def test_batches_go_on_as_one_when_few_of_their_rows_are_left(name, few):
    """Or alone, those for which the pool has no room; captured in two parts then, whichever way they go."""
    rng = np.random.default_rng(4)
    network = exact_network(rng, [40] * 11, 0.3, (-6, -1), 8.0, single=0.25)
    given = np.zeros((300, 40))  # which die at once, but for some
    living = given[:: 12 if few else 2]
    living[...] = rng.integers(1, 7, living.shape)
    inputs = Inputs.from_array(given.astype(np.float32))
    told = reference.infer(network, inputs, values=True)
    assert told.alive.size == len(living)
    for order, count in ((0, 1), (1, 2), (2, 1), (3, 2)):
        session = opened(network, inputs, Settings(name, count, batches=6), "dead", order, values=True)
        for _ in range(2):
            got = session.run()
            assert_equal(got, told, to_the_bit=False)
        some = opened(network, inputs, Settings(name, count, batches=6), "dead", order, values=np.arange(0, 300, 3))
        assert_keeps_some(some.run(), got)
        assert got.notes["joined_before_layer"] == session.cut.stages[session.cut.joined][0] + 1
        joined = got.notes["batches_joined"]
        # A device that draws a single batch has none to join it to.
        most = sum(n for n in Counter(got.notes["groups"]).values() if n > 1)
        assert joined == most if few else 0 < joined < 6
        if session.graphs:
            assert len(session.graphs.captured) == 2 * count


@pytest.mark.parametrize("name", ["stream", "graph"])
def test_equal_rows_of_different_batches_become_one_when_they_are_joined(name):
    network = exact_network(np.random.default_rng(4), [40] * 11, 0.3, (-6, -1), 8.0, single=0.25)
    distinct = np.random.default_rng(5).integers(1, 7, (3, 40))
    inputs = Inputs.from_array(np.tile(distinct, (60, 1)).astype(np.float32))  # 180, of which each batch has all three
    told = reference.infer(network, inputs, values=True)
    alone = opened(network, inputs, Settings(name, batches=6, join=False), "dead,inputs").run()
    for order in range(4):
        got = opened(network, inputs, Settings(name, batches=6), "dead,inputs", order, values=True).run()
        assert_equal(got, told, to_the_bit=False)
        assert got.notes["batches_joined"] == 6
        left = np.unique(told.row_hash).size if told.alive.size else 0
        assert got.notes["rows_merged"] == 180 - left > alone.notes["rows_merged"]
        assert got.edges_computed < alone.edges_computed


def test_the_timeline_tells_every_task_once():
    network, inputs = deep()
    session = opened(network, inputs, Settings("stream", 2, batches=3), order=2)
    got = session.run()
    assert "timeline" not in got.notes  # which is not put together on the clock
    session.tell(got)
    told = got.notes
    stages = len(told["stages"])
    assert told["timeline_tasks"] == len(told["timeline"]) == 3 * (stages + stages + stages - 1 + 1)
    lanes = {}
    for device, lane, kind, batch, first, last, begin, end in told["timeline"]:
        assert 0 <= begin <= end
        assert 0 <= first < last <= network.depth
        assert (lane == "copy-weights") == (kind == "copy-weights")
        lanes.setdefault((device, lane), []).append((begin, end, batch))
    assert set(lanes) == {(0, "compute"), (1, "compute"), (0, "copy-weights"), (1, "copy-weights")}
    for spans in lanes.values():
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    busy = sum(end - begin for begin, end, _ in lanes[0, "compute"])
    assert told["busy_seconds"]["0"]["compute"] == pytest.approx(busy)
    assert 0 <= told["copies_hidden"] <= 1


def test_copies_are_hidden_where_their_device_computes():
    def span(device, lane, begin, end):
        return Span(device, lane, lane, 0, 0, 1, begin, end)

    spans = [span(0, "compute", 4, 6), span(0, "compute", 1, 3), span(0, "copy-weights", 0, 2)]
    assert copies_hidden(spans) == 1 / 2
    assert copies_hidden([*spans, span(0, "copy-weights", 2, 8), span(1, "copy-weights", 0, 2)]) == (1 + 3) / 10
    assert copies_hidden(spans[:2]) is None


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_more_memory_is_taken_than_was_promised(name):
    network, inputs = deep()
    count = 2 if name == "pipeline" else 1
    told = deep_result("dead,inputs")
    free = opened(network, inputs, Settings(name, count, batches=1), "dead,inputs")
    whole = free.cut.most_memory(free.sizes)
    devices = [device.device for device in free.devices]
    for i, device in enumerate(devices):
        assert 0 < device.used <= free.cut.memory(free.sizes, i)
    free.run()
    del free  # nothing else holds its memory
    assert [device.used for device in devices] == [0] * count
    promise, opens = whole, 0
    while True:
        request = Settings(name, count, device_memory=int(promise))
        try:
            session = opened(network, inputs, request, "dead,inputs", order=2)
        except MemoryTooSmall as error:
            refused = str(error)
            break
        got, opens = session.run(), opens + 1
        assert_equal(got, told)
        assert all(device.device.most <= promise for device in session.devices)
        assert max(got.notes["memory_bytes"]) <= promise
        assert got.notes["device_memory_bytes"] == int(promise)
        promise *= 0.7
    assert opens > 1
    assert session.batches > 1
    assert "bytes" in refused


def test_a_promise_makes_weights_stream_by_what_was_measured():
    network, inputs = deep()
    session = opened(network, inputs, Settings(batches=1), "dead")
    assert (session.cut.schedule, session.predicted) == ("graph", None)
    assert session.why == "graph: all weights fit the one device there is, and nothing is faster"
    least = session.cut.memory(session.sizes, 0) - sum(session.sizes.weights) // 4
    got = opened(network, inputs, Settings(device_memory=least, batches=1), "dead").run()
    assert got.notes["schedule"] in ("stream", "graph")
    assert got.notes["buffers"] >= 2
    assert "would not fit the memory of a device" in got.notes["why"]
    assert 0 < got.notes["predicted_seconds"] < 100
    assert_equal(got, deep_result("dead"))


def test_what_tasks_cost_is_measured_on_the_first_device(monkeypatch):
    network, inputs = deep()
    seen = []
    monkeypatch.setattr(
        session_module, "measure_costs", lambda *given: seen.append(cuda_probe.measure_costs(*given)) or seen[0]
    )
    session = opened(network, inputs, Settings(devices=2), "dead,inputs")
    (costs,) = seen
    told = reference.infer(network, inputs)
    assert costs.work.inputs == 230
    np.testing.assert_allclose(costs.work.survivors, [230, *told.survivors[:-1]], rtol=1e-12)
    assert (costs.work.rows <= costs.work.survivors).all()
    assert costs.work.rows[0] == 230 > costs.work.rows[-1]  # equal ones were merged
    assert min(costs.device.seconds_per_edge) > 0
    assert costs.device.copy_bytes_per_second > 0
    assert costs.messages.bytes_per_second > 0
    assert session.predicted > 0


def test_a_pinned_table_is_kept_until_its_copy_is_done(set_all):
    """A copy reads it later; CuPy's pool would give the memory of a table that nothing holds to the next one."""
    network, inputs = deep()
    held, lost = [], []

    def table(*given, real=cuda_probe.batch_table):
        found = real(*given)
        held.append(weakref.ref(found.base))
        return found

    def launched(launches, real=cuda_probe.launch_all):
        lost.append(held[-1]() is None)
        real(launches)

    set_all(cuda_probe, batch_table=table, launch_all=launched)
    opened(network, inputs, Settings(devices=2), "dead,inputs")
    assert held
    assert not any(lost)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_that_ends_early_leaves_nothing_on_its_way(monkeypatch, schedule):
    """Else copies would go on to memory that another session has been given."""
    network, inputs = deep()
    for order in (1, 2):
        session = opened(network, inputs, Settings(schedule, 2, batches=4), order=order)
        streams = session.devices[0].device.node.streams
        with monkeypatch.context() as patch:
            patch.setattr(CudaGraphRun, "_collect_rows", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                session.run()
        assert not any(stream.queue for stream in streams)
        assert_equal(session.run(), deep_result())


def test_the_engine_takes_devices_from_the_first_it_was_given(on_shim):
    devices = devices_of(3)
    on_shim(devices=devices)
    network, inputs = deep()
    told = infer(network, inputs, "cuda")
    before = [device.launches.total() for device in devices]
    prepared = ENGINE.prepare(network, parse_reductions("all"))
    session = ENGINE.open(prepared, inputs, Options(1, device=1, settings=Settings("pipeline", 2)))
    assert_equal(session.run(), told)
    after = [device.launches.total() for device in devices]
    assert [a > b for a, b in zip(after, before, strict=True)] == [False, True, True]
    assert_equal(infer(network, inputs, "taskgraph-cuda", settings=Settings("graph", 3)), told)
    with pytest.raises(InputError, match="2 devices, and 1 were asked for"):
        CudaGraphSession(devices[:2], prepared, inputs, Options(1))


def test_several_devices_do_as_much_more_at_best(monkeypatch):
    one = Machine("sm_90", [1.0], [2.0], [3.0], [4.0, 3.5])
    monkeypatch.setattr(CudaEngine, "ceilings", lambda self, options, seconds: one)
    assert ENGINE.ceilings(Options(), 1.0) == one
    three = ENGINE.ceilings(Options(settings=Settings(devices=3)), 1.0)
    assert three == Machine("sm_90", [3.0], [6.0], [9.0], [12.0, 10.5])
