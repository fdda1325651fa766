"""The verdict on a result: against the official truth, a file, or the oracle; and on a record that nobody runs again.

The oracle is slow, so it judges no more inputs than some seconds allow, drawn at random.
"""

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.request import ORACLE_EDGES
from spdnn.core.result import Result, check_sound
from spdnn.core.validation import WHOLE, quote
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.verdict import Verdict, run_digest
from spdnn.runs.verify import counts, parts
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.official import not_official, official_problem


def judge(
    network: Network,
    inputs: Inputs,
    result: Result,
    truth: str | None = None,
    edges: float = ORACLE_EDGES,
    seed: int = 0,
    telling: bool = False,
    layer_edges: np.ndarray | None = None,
) -> Verdict:
    """The verdict on a result: against `truth`, else the official truth where it applies, else the oracle.

    Args:
        truth: official (or official:N), oracle, a file of categories, or None.
        edges, seed: what the oracle may go through, and the seed of the sample when that is not enough for all inputs.
        telling: fail also when none or all of the inputs compared survive: such a truth tells little.
        layer_edges: of a row in each layer, as the network was prepared; None: not known.

    Raises:
        SpdnnError: the result cannot be of this network. As truth_for.
    """
    verdict = verdict_of(network, result, truth_for(network, inputs, result, truth, edges, seed), layer_edges)
    verdict = parts.judged(verdict, network, result, seed)
    if telling and verdict.expected in (0, verdict.truth.checked):
        active = f"{verdict.expected} of {verdict.truth.checked} inputs stay active"
        reason = f"{active}: a preset whose ground truth is empty or full shows nothing"
        verdict = replace(verdict, passed=False, reasons=[*verdict.reasons, reason])
    return replace(verdict, judged=verdict_key(network, inputs, result))


def verdict_of(network: Network, result: Result, truth: verify.Truth, layer_edges: np.ndarray | None = None) -> Verdict:
    """The verdict on a result, whose counts by layer must be possible too; arguments as of `judge`."""
    check_sound(result, network)
    verdict = verify.judge(result, truth)
    wrong = list(counts.faults(network, result, layer_edges))
    return replace(verdict, passed=False, reasons=[*verdict.reasons, *wrong]) if wrong else verdict


def verdict_key(network: Network, inputs: Inputs, result: Result, digest: str | None = None) -> str:
    """What ties a verdict on the result to its run; `digest`: of the output, where it is not the result's."""
    run = network.identity(), network.depth, network.edges, inputs.sha256
    return run_digest(*run, digest or result.digest, result.sha256)


def truth_for(
    network: Network,
    inputs: Inputs,
    result: Result,
    truth: str | None = None,
    edges: float = ORACLE_EDGES,
    seed: int = 0,
) -> verify.Truth:
    """What `judge` compares a result with; the result tells which inputs a sample for the oracle is drawn from.

    Raises:
        InputError: the official truth was asked for, and the data are not the official ones; or as load_truth.
    """
    demanded = truth is not None and truth.startswith("official")
    if truth is None or demanded:
        if demanded and truth != "official":
            load_truth(truth, inputs.count)  # a width without a truth is another mistake
        matched = official_problem(network, inputs)
        if matched and truth in (None, "official", f"official:{matched.neurons}"):
            return verify.official(matched.neurons, inputs.count, network.depth)
        if demanded:
            size = f"{network.width} neurons x {network.depth} layers"
            reason = f"{size} are none of the twelve"
            if network.width in challenge.WIDTHS and network.depth in challenge.DEPTHS:
                problem = challenge.problem(network.width, network.depth)
                reason = not_official(network, inputs, problem) or f"{truth} is not {size}"
            raise InputError(f"this is no official problem, as it should be: {reason}")
    if truth in (None, "oracle"):
        return verify.oracle(network, inputs, sample(network, result, edges, seed), seed)
    return load_truth(truth, inputs.count)


def sample(network: Network, result: Result, edges: float = ORACLE_EDGES, seed: int = 0) -> np.ndarray | None:
    """As verify.sample, of a network; SpdnnError where the result cannot be of it."""
    check_sound(result, network)
    return verify.sample(result, [network.header(k).edges for k in range(network.depth)], edges, seed)


def load_truth(text: str, count: int | None) -> verify.Truth:
    """The truth that `text` names, official:N or a file, for `count` inputs (None: as many as a file lists); InputError
    where it names none.
    """
    if text.startswith("official:"):
        width = text.removeprefix("official:")
        if not WHOLE.fullmatch(width):
            raise InputError(
                f"truth {quote(text)}: it must be official:N with N one of {', '.join(map(str, challenge.WIDTHS))}"
            )
        return verify.official(int(width), count)
    return verify.from_file(text, count)


def check(record: RunRecord, where: str) -> None:
    """Raise InputError, in a sentence that starts with `where`, unless an official record has the official categories.

    Reading asks that of records with all inputs; here the truth of any number of them is made from its table.
    """
    problem, result = record.problem, record.result
    if problem.official is None:
        return
    count, sha256 = _truth(problem.neurons, problem.input_count)
    if (result.categories, result.categories_sha256) != (count, sha256):
        raise InputError(
            f"{where}: result.categories_sha256: {result.categories} categories of {problem.input_count} inputs are "
            f"not the {count} of the official ground truth"
        )


@lru_cache(maxsize=64)
def _truth(neurons: int, count: int) -> tuple[int, str]:
    """(number, digest) of the official categories of the first `count` inputs."""
    categories = verify.official(neurons, count).categories
    return int(categories.size), challenge.categories_sha256(np.asarray(categories))
