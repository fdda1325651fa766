"""Numbers, units and fields of records in words, and the definitions that several sections need."""

import json

from spdnn.core import limits
from spdnn.core.shown import plural, printable
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.published import SPANS
from spdnn.runs.records.result import ProblemRecord
from spdnn.runs.records.verdict import Verdict

STREAMED = "layer loop, weights streamed"
ONE_LAYER = "one layer, features in the engine's layout"
RECORD_SPANS = {
    "layer loop, resident": SPANS["layer loop, resident"],
    STREAMED: "all layers, compaction included, and the reading of each layer's weights while it runs",
    ONE_LAYER: "product, bias and activation of one layer; weights and features are in memory, in the engine's layout",
}
SOURCES = {
    "radixnet": "RadiX-Net by formula",
    "unstructured": "unstructured (random)",
    "digits": "digits (scikit-learn), scaled up",
    "mnist": "MNIST",
    "memory": "from memory",
    "random": "uniform random numbers",
}
SAME_WIDTH = ("radixnet", "unstructured")  # sources of networks whose layers have one width
LANES = {"compute": "computes", "copy-weights": "copies weights", "move": "rows arrive"}  # of a device's timeline

SEVERAL = "barrier to barrier, slowest rank, categories gathered on rank 0 included"
IN_SHORT = "slowest rank, gathering included"  # SEVERAL, in a table
DEFINITIONS = {  # {...}: filled in where the page lists them
    "Read": "Files or formulas to inputs and weights in memory. Not part of the rate.",
    "Prepare": "Searching for reductions and making the engine's layout of the network. Not part of the rate.",
    "Inference": "From inputs and weights in memory to categories and row sums; with streamed weights, their reading "
    "too.",
    "TeraEdges/s": "The challenge's rate: inputs × edges ÷ inference seconds, in 10¹² a second, whatever work was "
    "skipped. Edges are the nonzeros over all layers, never floating-point operations.",
    "Edges really computed": "Inputs × edges that the run computed after its reductions, ÷ the same seconds. The gap "
    "to the rate above is work avoided, not speed. Inputs are padded to whole tiles, so it may exceed all edges.",
    "Reductions": "{reductions} All are exact: what is left out has no part in any value, up to rounding.",
    "Median and interval": "The median over the repeats, with a bootstrap interval of that median. A run measured once "
    "has no interval.",
    "Same work": "The challenge's official inputs, and only dead inputs left out, which the fastest exact published "
    "systems leave out as well; some leave out single zeros too, and lossy ones more. The work is the same, the "
    "hardware is not.",
    "Work avoided, exactly": "Identical inputs and neurons are computed once, too. The challenge's rate counts the "
    "edges that were skipped.",
    "Time to solution": "From the start of a process to verified categories, downloads, further repeats and measuring "
    "the machine left out; of a workflow, the sum of the stages of the case, shared ones counted whole. No published "
    "rate has it.",
    "Busy machine": "Other processes, or a limit of the control group, took more than 10 % of the cores during the "
    "measurement: times may be longer than on a quiet machine.",
    "Older code": "The package's sources differ from those of the newest record of the same machine.",
    "Record": "Whole: its checksum, digests and figures agree; or what it lacks. spdnn record check --rerun repeats "
    "the run.",
    "Borderline": "An input whose last row is nonzero in one of two precisions alone, too small there to decide; it "
    "passes.",
    "Lossy": "A published method whose values are approximate; none of the runs on this page are.",
    "Several ranks": "Processes that divide the inputs; each computes all layers of its own. Inference is measured "
    f"{SEVERAL}: in tables, {IN_SHORT}. Threads are those of each rank. Peak memory is of the node that holds most: "
    "its ranks' own and what they share once.",
    "Partition": "Which inputs a rank starts with. Static: contiguous. Cyclic: every R-th of R ranks. Rebalanced: "
    "contiguous, and between layers ranks compare their rows, and exchange some when the gain predicted exceeds the "
    "cost.",
    "Waiting, communication, computing": "Parts of each rank's inference seconds: waiting for other ranks; sending and "
    "receiving; and the rest.",
    "Imbalance": "The maximum over the mean of the ranks. 1 is even; with 2, half of the ranks' time is lost.",
    "Speed-up, efficiency": "Speed-up is the rate of R ranks (or threads, or GPUs) ÷ the rate of one with the same "
    "settings; efficiency is speed-up ÷ R. Under strong scaling the inputs stay the same; under weak scaling they grow "
    "with the ranks.",
    "Load ceiling": "What the same threads loaded from the nearest cache and added up, measured right after the "
    "run{gpu_loads}. An edge gathers 4 bytes for each input (one bit in the first layer, where inputs are binary), so "
    "a quarter of it is the ceiling on edges a second.",
    "Memory ceiling": "Bytes read and bytes written a second while copying from memory to memory{gpu_memory}, measured "
    "in the same moment. It counts where the record has the bytes that the run moved past the caches.",
    "Machine's limit": "The least seconds that the run's work could take: bytes gathered ÷ the load ceiling, or bytes "
    "moved ÷ the memory ceiling, whichever is more. The share reached is it ÷ the median of the inference seconds.",
}
# Terms of pages that show what they are of.
OFFICIAL_TERMS = ("Same work", "Work avoided, exactly", "Lossy")  # of the challenge's networks
SEVERAL_TERMS = ("Several ranks", "Partition", "Waiting, communication, computing", "Imbalance")
SCALING_TERMS = ("Speed-up, efficiency",)
LIMIT_TERMS = ("Load ceiling", "Memory ceiling", "Machine's limit")
GPU = {  # what definitions of limits add on a page that has a GPU
    "gpu_loads": "; of a GPU, what all its multiprocessors loaded from their shared memory",
    "gpu_memory": " (of a GPU, within its own)",
}


def ceilings(machine: limits.Machine) -> dict[str, str]:
    """The names of the ceilings that `limits` knows, of a machine."""
    if machine.on_device:
        return {limits.LOADS: "loads from shared memory", limits.MEMORY: "the GPU's memory"}
    return {limits.LOADS: "loads from the nearest cache", limits.MEMORY: "memory"}


def network(problem: ProblemRecord) -> str:
    """Neurons and layers; where layers may differ in width, the widest."""
    if problem.network.get("source") not in SAME_WIDTH:
        return f"{plural(problem.layers, 'layer')}, at most {problem.neurons:,} wide"
    return f"{problem.neurons:,} neurons × {plural(problem.layers, 'layer')}"


def device(environment: Environment) -> str:
    """The device that a run used."""
    return printable(environment.gpu or environment.cpu)


def machine(environment: Environment) -> str:
    """A machine in words that no other has: the GPU if there is one, the processor and its cores."""
    processor = f"{printable(environment.cpu)}, {plural(environment.cores, 'core')}"
    return f"{printable(environment.gpu)} ({processor})" if environment.gpu else processor


def truth(verdict: Verdict) -> str:
    """The truth that an output was compared with."""
    truth = verdict.truth
    kind = {"official": "official list", "oracle": "float64 reference", "file": printable(truth.source)}[truth.kind]
    alone = f"; {verdict.parts.described}" if verdict.parts and verdict.parts.layers else ""
    if truth.checked == truth.inputs:
        return f"{kind}, all {truth.inputs:,} inputs{alone}"
    seed = "" if truth.seed is None else f", seed {truth.seed}"
    return f"{kind}, {truth.checked:,} of {truth.inputs:,} inputs{seed}{alone}"


def described(description: dict) -> str:
    """A network's or inputs' description: the source in words, then the rest as it is."""
    source = description.get("source")
    rest = {key: value for key, value in description.items() if key not in ("source", "sha256")}
    name = SOURCES.get(source, source) if isinstance(source, str) else "source unknown"
    for key, value in rest.items():
        if not isinstance(value, str):
            rest[key] = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    shown = ", ".join(f"{key} {value}" for key, value in rest.items())
    return printable(f"{name}; {shown}" if shown else name, 400)
