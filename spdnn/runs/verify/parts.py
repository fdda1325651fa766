"""The verdict on parts of a network that an engine ran alone (spdnn/runs/parts.py): every output, by the oracle."""

import numpy as np
from msgspec.structs import replace

from spdnn.core import closeness
from spdnn.core.errors import SpdnnError
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.engines import oracle
from spdnn.runs import parts
from spdnn.runs.records.verdict import Parts, Verdict

LISTED_PARTS = 10  # parts that a verdict lists


def judged(verdict: Verdict, network: Network, result: Result, seed: int) -> Verdict:
    """A verdict on a result, that looked at the outputs of parts too, where it has some.

    Raises:
        SpdnnError: these are not parts that the seed draws.
    """
    if result.parts is None:
        return verdict
    found = compare(network, result, seed)
    reasons = [*verdict.reasons]
    if found.failures:
        first = replace(found, layers=[found.layers[found.first[0] - 1]]).described
        reasons.append(f"{found.failures} outputs of parts of the network are wrong, the first of {first}")
    return replace(verdict, passed=not reasons, reasons=reasons, parts=found)


def compare(network: Network, result: Result, seed: int) -> Parts:
    """How the outputs of all parts of a result compare with the oracle's."""
    layers, wrong, inside, sizes, inputs = [], [], [], [], 0
    for number, (shape, rows) in enumerate(result.parts.each()):
        part, drawn = parts.Part(*shape), parts.draw(network, seed, number)
        own = parts.network_of(network, part)
        if (part.stop, part.count) != drawn[1:] or part.start < drawn.start or rows.shape[1] != own.outputs:
            raise SpdnnError(
                f"part {number + 1} of the network has layers {part.start + 1} to {part.stop} and {part.count} inputs; "
                f"seed {seed} draws layers {drawn.start + 1} to {drawn.stop} and {drawn.count} inputs"
            )
        x = parts.inputs_of(network, part, seed, number)
        _, off = oracle.judge(own, x, None, np.arange(part.count), stage="verify", dense=True)
        wrong.append(int(closeness.wrong(rows, off.values, off.each).sum()))
        inside.append(parts.inside(off.values, own))
        layers.append((part.start + 1, part.stop))
        sizes.append(rows.size)
        inputs += part.count
    first = [number for number, failures in enumerate(wrong, 1) if failures][:LISTED_PARTS]
    share = float(np.average(inside, weights=sizes))
    rule = f"within float32 rounding: every output; {share:.0%} of them lie between the bounds of the activation"
    return Parts(rule, layers, inputs, sum(sizes), share, sum(wrong), first)
