"""The official networks on the MNIST inputs, every verdict exact, every passing run a record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tally import NotHere, Tally

from spdnn.common.errors import SpdnnError
from spdnn.common.resources import usable_cores
from spdnn.engines.base import Options, Prepared
from spdnn.engines.registry import engine, nondefault_settings
from spdnn.pipeline.measure import run as measure
from spdnn.pipeline.measure.judging import judge
from spdnn.pipeline.measure.record import Measurement
from spdnn.pipeline.run import make_record
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.request import RunRequest
from spdnn.records.run_record import RunRecord
from spdnn.reductions.registry import parse_reductions
from spdnn.scheduling.taskgraph.settings import TaskgraphSettings
from spdnn.sources.mnist import locate_mnist, mnist_inputs
from spdnn.sources.radixnet import RadixNet

# Of config/ladder-cuda.yaml: the rungs below the engine `cuda`, on the network that it names.
LADDER = (
    ("cusparse", "none"),
    ("cuda-csr", "none"),
    ("cuda-ell", "none"),
    ("cuda-staged", "none"),
    ("cuda-staged", "dead"),
    ("cuda-staged", "dead,inputs"),
    ("cuda-staged", "all"),
    ("cuda-persistent", "all"),
)
LADDER_PROBLEM = challenge.problem(1024, 120)
REPEATS = {"all": 7, "dead,inputs": 5, "dead": 5, "none": 3}
# How long a case may take is guessed, so that none begins that will not end in time.
EDGES_PER_SECOND = 1e12  # gone through, of edges x inputs
LONGEST = 20.0  # seconds of a run without reductions; longer ones are not made
FIRST_OPENING = 1e-7  # seconds for each edge that one thread lays out, until a case has shown more
SHARE_OUT = 4  # threads that surely lay out layers at once, where there are so many
SLOWER = 1.5  # a wider network may be, for each edge
TELLING = 1e8  # edges of a network, that of smaller ones is mostly other things
PREPARING = 1.2e-8  # seconds for each edge, of merging neurons


@dataclass(frozen=True)
class Case:
    """One run to make; `settings`: of engines that cut an inference, how."""

    problem: challenge.OfficialProblem
    engine: str
    reductions: str
    settings: TaskgraphSettings | None = None

    @property
    def name(self) -> str:
        schedule = f" {self.settings.schedule}" if self.settings else ""
        return f"{self.problem.name} {self.engine}{schedule} {self.reductions}"

    @property
    def work(self) -> float:
        """Edges x inputs that a run without reductions goes through."""
        return float(self.problem.edges) * challenge.INPUTS


def cases(widths: Sequence[int] = challenge.WIDTHS, quick: bool = False) -> list[Case]:
    """All cases: with all reductions, the ladder, with dead rows alone, without any; within each, small ones first."""
    problems = sorted((p for p in challenge.PROBLEMS if p.neurons in widths), key=lambda p: p.edges)
    if quick:
        return [Case(p, "cuda", "all") for p in problems if p.layers == min(challenge.DEPTHS)]
    ladder = [Case(LADDER_PROBLEM, *rung) for rung in LADDER] if LADDER_PROBLEM in problems else []
    plain = [Case(p, "cuda", "none") for p in problems]
    return [
        *(Case(p, "cuda", "all") for p in problems),
        *ladder,
        *(Case(p, "cuda", "dead") for p in problems),
        *(case for case in plain if case.work / EDGES_PER_SECOND < LONGEST),
    ]


class Networks:
    """Runs cases, keeping inputs and prepared networks of one width for the next case that wants them.

    Args:
        store: is given the run record of each case that passed.
        mnist: the file of MNIST images, None: fetched or of the mirror.
    """

    def __init__(self, tally: Tally, store: Callable[[dict], Any], mnist: str | None, ordinal: int | None = None):
        self.tally, self.store, self.mnist = tally, store, mnist
        self.options = Options(usable_cores(), device=ordinal)
        self.opening = FIRST_OPENING / min(self.options.threads, SHARE_OUT)
        self._inputs: dict[int, tuple[Inputs, float]] = {}
        self._prepared: dict[tuple, tuple[Prepared, float]] = {}
        self.rows: list[str] = []

    def run(self, cases: Sequence[Case]) -> None:
        """All cases, as far as time allows."""
        deepest: dict[int, int] = {}
        for case in cases:
            deepest[case.problem.neurons] = max(deepest.get(case.problem.neurons, 0), case.problem.layers)
        for case in cases:
            depth = deepest[case.problem.neurons]
            row = self.tally.case(
                case.name, lambda case=case, depth=depth: self.one(case, depth), self.needs(case, depth)
            )
            if row:
                self.rows.append(row)
                self.tally.tell(f"ok    {row}")

    def needs(self, case: Case, depth: int) -> float:
        """The seconds that a case is guessed to take."""
        edges, neurons = case.problem.edges, case.problem.neurons
        if case.reductions == "all":
            known = (neurons, case.engine, case.reductions) in self._prepared
            return 0.0 if known else PREPARING * edges / case.problem.layers * depth
        running = case.work / EDGES_PER_SECOND if case.reductions == "none" else 0.0
        return self.opening * edges + (REPEATS[case.reductions] * running)

    def one(self, case: Case, depth: int | None = None) -> str:
        """Run, judge and record one case, prepared at least `depth` layers deep; its row of the table.

        Raises:
            AssertionError: the verdict is not pass.
        """
        runner, problem = engine(case.engine), case.problem
        inputs, read = self.inputs(problem.neurons)
        deep, spent = self.prepared(runner, case, max(depth or 0, problem.layers))
        prepared, repeats = deep.first(problem.layers), REPEATS[case.reductions]
        options = replace(self.options, settings=case.settings)
        measured, result = measure.measure(runner, measure.LoadedRun(inputs, prepared, read, spent), options, repeats)
        measurement = Measurement.of(measured)
        if case.reductions != "all" and problem.edges >= TELLING:
            opened = measurement.read_seconds[0] - read
            self.opening = SLOWER * opened / problem.edges
        verdict = judge(prepared.source, inputs, result)
        assert verdict.passed, "; ".join(verdict.reasons)
        values = {} if case.settings is None else {k: v for k, v in vars(case.settings).items() if v is not None}
        request = RunRequest(
            neurons=problem.neurons,
            layers=problem.layers,
            engine=case.engine,
            reductions=case.reductions,
            repeats=repeats,
            settings=nondefault_settings(case.engine, values),
        )
        record = make_record(request, measurement, verdict)
        self.store(record)
        return row(case, record)

    def inputs(self, neurons: int) -> tuple[Inputs, float]:
        """The official inputs of a width, and the seconds that making them took.

        Raises:
            NotHere: no file of images was named, and none can be had.
        """
        if neurons not in self._inputs:
            try:
                images = locate_mnist(self.mnist)
            except SpdnnError as error:
                if self.mnist:
                    raise
                raise NotHere(f"the MNIST images cannot be had (--mnist FILE names them): {error}") from error
            self._inputs[neurons] = measure.time_call(mnist_inputs, neurons, images)
        return self._inputs[neurons]

    def prepared(self, runner, case: Case, depth: int) -> tuple[Prepared, float]:
        """At least `depth` layers, kept for the next case; anew where a part before this one kept fewer."""
        key = case.problem.neurons, case.engine, case.reductions
        kept = self._prepared.get(key)
        if kept is None or kept[0].source.depth < depth:
            network = RadixNet(case.problem.neurons, depth)
            reductions = parse_reductions(case.reductions, runner.offers)
            self._prepared[key] = kept = measure.time_call(runner.prepare, network, reductions)
        return kept


HEAD = "case                                  seconds  TeraEdges/s  x limit (binds)   kernels"


def row(case: Case, record: RunRecord) -> str:
    """A row of the table under HEAD. `x limit`: how many times as long as the machine's limit allows."""
    seconds, limit = sorted(record.seconds), record.limit
    median = seconds[len(seconds) // 2]
    away = f"{median / limit.seconds:.1f} ({limit.binds})" if limit and limit.seconds else "-"
    told = record.engine.noted.get("kernels", {}).get("shapes", [])
    kernels = "+".join(dict.fromkeys(shape["kernel"] for shape in told)) or "-"
    rate = record.edges_per_second.median / 1e12
    return f"{case.name:<35} {median:>9.5f} {rate:>12.3f}  {away:>15}   {kernels}"
