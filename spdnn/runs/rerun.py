"""A run record's run, once more: rebuilt from fields of known types and bounds, and compared with what the record says.

No text of a record is run, and no file is opened that its reader does not name: a network or inputs that no formula
makes are given by name, and must have the digests of the record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.request import RunRequest
from spdnn.core.resources import usable_cores
from spdnn.core.validation import END, UNREADABLE, shorten
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.unstructured import Unstructured
from spdnn.runs.records.run_record import Measurement, RunRecord, busy_part
from spdnn.runs.run import Sources, run, verdict_on

REPEATS = 3  # at most
FASTER = 3  # a record may be that many times as fast as its run here, on the same kind of machine
WORK = 2  # edges computed may differ by this factor: batches follow the memory that is free

_Width = Annotated[int, Meta(ge=1, le=challenge.MAX_WIDTH)]
_Depth = Annotated[int, Meta(ge=1, le=challenge.MAX_LAYERS)]
_Seed = Annotated[int, Meta(ge=0, lt=2**32)]


class _RadixNet(msgspec.Struct, tag_field="source", tag="radixnet"):
    neurons: _Width
    layers: _Depth
    seed: _Seed
    bias: float
    ymax: float | None

    def network(self) -> Network:
        return RadixNet(self.neurons, self.layers, self.bias, self.ymax, self.seed)


class _Unstructured(msgspec.Struct, tag_field="source", tag="unstructured"):
    neurons: _Width
    layers: _Depth
    seed: _Seed
    sha256: Annotated[str, Meta(pattern=f"^[0-9a-f]{{64}}${END}")] | None = None
    first_layers: _Depth | None = None

    def network(self) -> Network:
        return Unstructured(self.neurons, self.first_layers or self.layers, self.seed)


class _Inputs(msgspec.Struct):
    source: Literal["mnist", "digits"]


class RerunOutcome(NamedTuple):
    """What a repeated run showed.

    Attributes:
        same: sentences on what agrees; open: on what was not compared, and why; wrong: on what contradicts the record.
    """

    same: list[str]
    open: list[str]
    wrong: list[str]


def rerun(
    record: RunRecord, network: Network | None = None, inputs: Inputs | None = None, mnist: str | None = None
) -> RerunOutcome:
    """Run a checked record's run once more here, on one rank, and compare.

    Args:
        network, inputs: those of the record, where no formula makes them; or else.
        mnist: the file of MNIST images, where its inputs are made of it.

    Raises:
        InputError: network or inputs are not those of the record, or it tells of something that cannot be rebuilt.
        Unavailable: its engine cannot run here.
    """
    problem = record.problem
    # Network and inputs come from a formula or from the caller; either way they must have the digests of the record.
    network = _network(record) if network is None else _check_identity(record, network.first(problem.layers))
    inputs = _inputs(record, mnist) if inputs is None else inputs
    inputs = inputs if inputs.count == problem.input_count else inputs.first(problem.input_count)
    _check_same_sizes(record, network, inputs)
    # The same request, as far as this machine has threads and devices for it.
    request = _request(record)
    by_file = record.verdict.truth.kind == "file"
    done = run(request, Sources(network, inputs), keep=None if by_file else False)
    measurement, result = done.measurement, done.result
    outcome = RerunOutcome([], [], [])
    # Outputs must be equal; times only plausible, for they depend on the machine.
    _compare_outputs(record, measurement, outcome)
    _compare_times(record, measurement, outcome)
    # The verdict is made anew, so that it does not rest on what the record claims.
    if by_file:
        outcome.open.append("the file that it was compared with is not repeated")
    elif record.engine.name != "reference":
        verdict = verdict_on(request, network, inputs, result)
        agreed, judged = (outcome.same, "pass") if verdict.passed else (outcome.wrong, f"FAIL: {verdict.reasons}")
        agreed.append(f"verdict {judged} ({verdict.truth.source}, {verdict.truth.checked} inputs)")
    return outcome


def _network(record: RunRecord) -> Network:
    """The record's network by its formula."""
    problem = record.problem
    if problem.official:  # from official text or by formula: the layers are the same
        return RadixNet(problem.neurons, problem.layers)
    described = _as_kind(_RadixNet | _Unstructured, problem.network)
    if described is None:
        raise InputError("its network is made by no formula; name the file of it (--network)")
    if not isinstance(described, _Unstructured) or not described.sha256:
        return _check_identity(record, described.network())
    # A store of an unstructured network is known by the digest of all its layers.
    if Unstructured(described.neurons, described.layers, described.seed).sha256() != described.sha256:
        raise InputError("its unstructured network is not what the formula gives: another digest of the layers")
    return described.network()


def _check_identity(record: RunRecord, network: Network) -> Network:
    """The network, when it is the one that the record names."""
    problem = record.problem
    if not problem.official and network.identity() != problem.network_identity:
        raise InputError(f"its network is another: {network.identity()}, not {problem.network_identity}")
    return network


def _inputs(record: RunRecord, mnist: str | None) -> Inputs:
    described, neurons = _as_kind(_Inputs, record.problem.inputs), record.problem.neurons
    described = _Inputs("mnist") if record.problem.official else described
    if described is None or neurons not in challenge.WIDTHS:
        raise InputError("its inputs are made by no formula; name the file of them (--inputs)")
    if described.source == "digits":
        from spdnn.formats.digits import digits_inputs

        return digits_inputs(neurons)
    from spdnn.formats.mnist import locate_mnist, mnist_inputs

    return mnist_inputs(neurons, mnist or locate_mnist())


def _as_kind(kind: Any, described: dict) -> Any:
    """What a free description says, when it is of that kind; None otherwise."""
    try:
        return msgspec.convert(described, kind)
    except UNREADABLE:
        return None


def _check_same_sizes(record: RunRecord, network: Network, inputs: Inputs) -> None:
    """Raise InputError unless inputs have the record's digest, and the network its sizes."""
    problem = record.problem
    if inputs.sha256 != problem.inputs_sha256:
        raise InputError(f"its inputs are others: {inputs.sha256}, not {problem.inputs_sha256}")
    sizes = network.width, network.depth, network.edges
    if sizes != (problem.neurons, problem.layers, problem.edges):
        raise InputError(f"its network has {sizes} neurons, layers and edges, and not those of the record")


def _request(record: RunRecord) -> RunRequest:
    """The record's request as it runs here: on one rank, and on no more threads than there are cores."""
    if record.request is None:
        raise InputError("it is of a single layer beside other libraries; its own command repeats it")
    truth = record.request.truth
    return replace(
        record.request,
        ranks=1,
        device=None,
        threads=min(record.threads, usable_cores()),
        memory=record.memory_limit_bytes,
        repeats=min(len(record.seconds), REPEATS),
        repeat_if_busy=0,
        truth=truth if truth == "oracle" or (truth or "").startswith("official") else None,
    )


def _compare_outputs(record: RunRecord, again: Measurement, outcome: RerunOutcome) -> None:
    before, now = record.result, again.result
    # Categories are exact on every machine; the bits of the values may depend on instruction set and code.
    for name in ("categories", "categories_sha256", "survivors"):
        same = getattr(before, name) == getattr(now, name)
        (outcome.same if same else outcome.wrong).append(f"{name.replace('_', ' ')} {'the same' if same else 'differ'}")
    if now.digest == before.digest:
        outcome.same.append("digest of the output the same, to the bit")
    elif why := _other_bits(record, again):
        outcome.open.append(f"digest of the output differs, as it may: {why}")
    else:
        outcome.wrong.append("digest of the output differs, with the same code on the same kind of machine")
    # Skipped work depends on the size of the batches, which follows the free memory: a factor is allowed.
    work = now.edges_computed / max(1, before.edges_computed)
    compared = f"{before.edges_computed:,} edges computed, and {now.edges_computed:,} here"
    (outcome.same if 1 / WORK <= work <= WORK else outcome.wrong).append(compared)


def _other_bits(record: RunRecord, again: Measurement) -> str | None:
    """Why two right outputs of the engine need not have the same bits."""
    before, now = record.environment, again.environment
    if record.engine.notes.instruction_set != again.engine.notes.instruction_set or (before.gpu or None) != now.gpu:
        return "another instruction set or device"
    if before.code != now.code:
        return "other code"
    return None if before.versions == now.versions else "other versions of libraries"


def _compare_times(record: RunRecord, again: Measurement, outcome: RerunOutcome) -> None:
    theirs, ours = median(record.seconds), min(again.inference_seconds)
    times = f"{shorten(f'{theirs:.4g}')} s in the record, {ours:.4g} s here"
    # Only a record that is too fast for the same machine is suspect; slow ones have many innocent causes.
    if differences := list(_other_machine(record, again)):
        outcome.open.append(f"times not compared ({', '.join(differences)}): {times}")
    elif theirs * FASTER < ours and not math.isclose(theirs * FASTER, ours):
        outcome.wrong.append(f"the record is more than {FASTER} times as fast on the same kind of machine: {times}")
    else:
        outcome.same.append(f"times: {times}")


def _other_machine(record: RunRecord, again: Measurement) -> Iterator[str]:
    before, now = record.environment, again.environment
    if (before.cpu, before.cores, before.gpu or None) != (now.cpu, now.cores, now.gpu):
        yield "another machine"
    if record.threads != again.threads:
        yield f"{record.threads} threads, and {again.threads} here"
    if record.ranks != 1:
        yield f"{record.ranks} ranks, and 1 here"
    if record.environment.code != again.environment.code:
        yield "other code"
    if busy := busy_part(again):
        yield f"other work took {100 * busy:.0f} % of this machine"
