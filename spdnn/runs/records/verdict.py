"""The verdict on one output, as a file has it and as it is part of a run record."""

import hashlib
from collections.abc import Iterator
from typing import Literal

from spdnn.core.fields import Claim, Count, Digest, First, Record, Whole
from spdnn.core.shown import listed

SCHEMA, VERDICT_VERSION = "spdnn-verdict", 3
MOST_NAMED = 3  # parts


class TruthRecord(Record):
    """What an output was compared with.

    Attributes:
        kind: official, the challenge's; oracle, float64; or file, categories alone.
        inputs: inputs of the run.
        checked: inputs compared: all of them, or a seeded sample.
        seed: of the sample; null when all inputs were compared.
    """

    kind: Literal["official", "oracle", "file"]
    source: str
    inputs: Count
    checked: Count
    seed: Whole | None


class Difference(Record):
    """Inputs on which run and truth differ.

    Attributes:
        first: 1-based inputs, ascending, at most 10.
    """

    count: Count
    first: First


class Values(Record):
    """How the values of the survivors compare with the truth's.

    Attributes:
        rule: what was compared, and how far it may differ.
        checked: inputs whose values were compared, by their sum, projection, least and largest at least.
        every: inputs of which every single value was compared with the oracle's; drawn before the run.
        failures: inputs of which a value is wrong.
        first: 1-based inputs of them, at most 10.
        largest_error: relative, as the rule says; null when nothing was compared.
    """

    rule: str
    checked: Count
    every: Count
    failures: Count
    first: First
    largest_error: float | None


class Survivors(Record):
    """How the numbers of active inputs after each layer compare with the truth's.

    Attributes:
        rule: what was compared, and how far it may differ.
        inputs: that were gone through for it, all or a sample; 0: nothing was compared.
        failures: layers whose number is beyond what rounding explains.
        first: of them, 1-based, at most 10.
    """

    rule: str
    inputs: Count
    failures: Count
    first: First


class Parts(Record):
    """How outputs of parts of the network, each run as a network of its own, compare with the float64 reference's.

    Attributes:
        rule: what was compared, and how far it may differ; or why nothing was.
        layers: of each part its first and its last, 1-based; empty: nothing was compared.
        inputs: of all parts, drawn from 0 to 1.
        outputs: that were compared, one by one.
        inside: of the reference's outputs, the share that no bound of the activation decides; null: nothing was
            compared.
        failures: outputs that are wrong.
        first: 1-based numbers of the parts with a wrong one, at most 10.
    """

    rule: str
    layers: list[tuple[Count, Count]]
    inputs: Count
    outputs: Count
    inside: float | None
    failures: Count
    first: First

    @property
    def described(self) -> str:
        """Which layers were run alone, in words."""
        names = [f"{first} to {last}" if last > first else f"{first}" for first, last in self.layers]
        one = len(names) == 1 and names[0].isdigit()
        return f"layer{'' if one else 's'} {listed(names, MOST_NAMED)} run alone"


def run_digest(network_identity: str, layers: int, edges: int, inputs_sha256: str, digest: str, sha256: str) -> str:
    """What ties a verdict to a run: one digest of its network, its inputs and its Result's `digest` and `sha256`."""
    parts = network_identity, layers, edges, inputs_sha256, digest, sha256
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


class Verdict(Record, omit_defaults=True):
    """Whether one output is right, against what, and where it first differs.

    Attributes:
        passed: nothing is missing, unexpected or of a wrong value.
        categories: of the run, among the inputs compared.
        expected: categories of the truth.
        missing: categories of the truth that the run lacks.
        unexpected: categories that the truth lacks.
        borderline: differences that rounding explains: rows that one side lacks, within rounding of zero, and rows of
            both sides whose sum is zero on one of them.
        reasons: one sentence for each thing that is wrong, also with the counts of layers; empty when it passed.
        judged: digest of the run that the verdict is on, its network, inputs and output; null: a list of categories, of
            no run that is known.
        survivors, parts: absent of version 2, in which they were compared with nothing.
    """

    schema: Literal["spdnn-verdict"]
    version: Literal[2, 3]
    passed: bool
    truth: TruthRecord
    categories: Count
    expected: Count
    missing: Difference
    unexpected: Difference
    borderline: Difference
    values: Values
    reasons: list[str]
    judged: Digest | None
    survivors: Survivors | None = None
    parts: Parts | None = None

    def claims(self) -> Iterator[Claim]:
        """Its counts agree, and it passes exactly when nothing is wrong."""
        truth, reasons, values = self.truth, len(self.reasons), self.values
        missing, unexpected, near = self.missing.count, self.unexpected.count, self.borderline.count
        layers = self.survivors.failures if self.survivors else 0
        outputs = self.parts.failures if self.parts else 0
        same = not (missing or unexpected or values.failures or layers or outputs)
        # A borderline input is in one of the two lists alone, so each moves the difference of the counts by one.
        apart = abs(self.expected - (self.categories + missing - unexpected))
        follows = apart <= near and (near - apart) % 2 == 0
        counts, state = f"{missing} missing, {unexpected} unexpected", "passed" if self.passed else "failed"
        yield self.passed != bool(reasons), f"reasons: a run that {state} has {reasons} of them"
        yield truth.checked >= 1, "truth.checked: no input was compared"
        yield truth.checked <= truth.inputs, f"truth.checked: {truth.checked} of {truth.inputs} inputs"
        yield values.failures <= values.checked, f"values.failures: {values.failures} of {values.checked}"
        yield self.version == 2 or self.survivors is not None, "survivors: absent"
        yield self.version == 2 or self.parts is not None, "parts: absent"
        if self.parts is not None:
            sizes = f"{self.parts.failures} of {self.parts.outputs} outputs of {len(self.parts.layers)} parts"
            empty = not self.parts.layers
            yield self.parts.failures <= self.parts.outputs, f"parts.failures: {sizes}"
            yield (self.parts.outputs == 0) == empty == (self.parts.inside is None), f"parts: {sizes}"
            yield all(1 <= first <= last for first, last in self.parts.layers), f"parts.layers: {self.parts.layers}"
        trivial = self.expected in (0, truth.checked)  # a truth for which a run may fail without a difference
        wrong = f"{counts} and {values.failures} wrong values" + f", and {layers} wrong layers" * bool(layers)
        wrong += f", and {outputs} wrong outputs of parts" * bool(outputs)
        yield not self.passed or same, f"passed: true, with {wrong}"
        # From version 3 on the counts of layers are reasons too.
        yield self.passed or not same or trivial or self.version > 2, f"passed: false, with {wrong}"
        what = f"{self.expected} does not follow from {self.categories} found, {counts}, {near} borderline"
        yield follows, f"expected: {what}"
