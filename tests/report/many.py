"""Thousands of sound records as a long-kept archive would hold them: for tests of reading, and benchmarks/report.py.

A record depends on its number alone. Of twenty run records in a row eleven are of official networks, three of programs
timed in turn, two of several ranks, one of a task graph, two of other networks and one full of text that would like to
be code.
"""

import copy
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from operation_cases import made_imbalance, made_operation
from records import HOSTILE, agreed, made_record, measured
from test_scaling import spread
from test_schedules import scheduled

from spdnn.core import challenge, limits

SEED = 20
RUNS_IN_A_LINE_FILE, OPERATIONS_IN_A_LINE_FILE = 250, 300
ENGINES = ("cpu", "tiled", "csr", "spgemm", "cuda", "cuda-csr", "cuda-ell", "cuda-staged", "cuda-persistent")
PEERS = ("cpu", "scipy", "mkl")
REDUCTIONS = ((), ("dead",), ("dead", "inputs"), ("dead", "inputs", "neurons"), ("neurons",))
MACHINES = (  # processor, cores, bytes of memory, GPU
    ("AMD EPYC 7763 64-Core Processor", 128, 512 << 30, None),
    ("Intel(R) Xeon(R) Platinum 8480+", 112, 1 << 40, "NVIDIA H200"),
    ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", 40, 192 << 30, "Tesla V100-SXM2-32GB"),
    ("ARM Neoverse-V2", 72, 480 << 30, "NVIDIA GH200"),
    ("AMD Ryzen 7 5800X", 16, 64 << 30, "NVIDIA GeForce RTX 3090"),
    ("a virtual machine", 2, 8 << 30, None),
)
OTHERS = ((64, 2), (256, 12), (1024, 30), (2048, 480), (8192, 120), (100_000, 3), (512, 1920))  # neurons, layers
SCHEDULES = (("resident", 1), ("stream", 1), ("graph", 2), ("pipeline", 2), ("graph", 4))
HOSTILES = (
    HOSTILE,
    "</script></style></svg><script>alert(1)</script>",
    "'\"><svg/onload=alert(1)>&quot;&#39;",
    "\u202egpj.exe\u202c \u2066over\u2069",
    "nul \0 escape \x1b[31m bell \a del \x7f lines \u2028\u2029\r\n\u0085 mark \ufeff",
    "{{ 7 * 7 }}{% raw %}{# #}${7*7}`$(id)`",
    "\U0001f600 \U0001d54a \u0645\u0631\u062d\u0628\u0627 e\u0301 " + "\u0301" * 40,
    "--><!-- ]]> <![CDATA[ javascript:alert(1) =cmd|'/C calc'!A0",
)


def run(number: int) -> dict:
    """The run record of that number."""
    random, kind = np.random.default_rng([SEED, number]), number % 20
    if kind < 14:
        record = _compared(number) if kind > 10 else _timed(number, random, str(random.choice(ENGINES)))
    elif kind < 16:
        record = _distributed(number, random)
    elif kind == 16:
        record = _task_graph(number, random)
    else:
        record = _timed(number, random, str(random.choice(ENGINES[:4])), official=False)
    record["created"] = f"20{random.integers(20, 26)}-{random.integers(1, 13):02}-{random.integers(1, 29):02}T03:04:05Z"
    return agreed(_hostile(record, number, random) if kind == 19 else record)


def operation(number: int) -> dict:
    """The operation record of that number: four programs in turn on each problem, of five layers at four sparsities."""
    problem, program = divmod(number, 4)
    random = np.random.default_rng([SEED, problem])
    name, times = (("ours", 1), ("mkl", 2), ("blas", 3), ("scipy", 5))[program]
    seconds = [float(value * times) for value in 1e-3 * random.lognormal(0, 0.1, random.integers(3, 21))]
    more = {"sparsity": (0.5, 0.7, 0.8, 0.9)[problem % 4], "layer": f"ffn_{problem // 4 % 5}"}
    more["network"] = ("transformer", "mobilenet", "resnet50")[problem // 20 % 3]
    imbalance = made_imbalance() if name == "ours" else None
    record = made_operation(name, seconds, imbalance=imbalance, comparison=f"{problem // 60:016x}", **more)
    record["problem"]["topology_sha256"] = _digest(problem)
    record["environment"]["cpu"] = MACHINES[problem // 60 % len(MACHINES)][0]
    if problem % 20 == 19:
        record["program"] |= {"version": HOSTILES[program], "notes": {HOSTILES[program]: HOSTILES[-1 - program]}}
    return record


def write(folder: Path, runs: int, operations: int = 0) -> list[Path]:
    """Write that many records: runs as one file each and, the second half, by lines; every tenth operation alone."""
    alone = [(f"run-{number:06}", run(number)) for number in range((runs + 1) // 2)]
    alone += [(f"operation-{number:06}", operation(number)) for number in range(0, operations, 10)]
    paths = []
    for name, record in alone:
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(record, indent=1), encoding="utf-8")
    lines = _lines("run", map(run, range((runs + 1) // 2, runs)), RUNS_IN_A_LINE_FILE)
    rest = (operation(number) for number in range(operations) if number % 10)
    for files in (lines, _lines("operation", rest, OPERATIONS_IN_A_LINE_FILE)):
        for name, text in files:
            paths.append(folder / name)
            paths[-1].write_text(text, encoding="utf-8")
    return paths


def _lines(kind: str, records: Iterator[dict], each: int) -> Iterator[tuple[str, str]]:
    """(name, text) of .jsonl files with that many records."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    for start in range(0, len(lines), each):
        yield f"{kind}s-{start:06}.jsonl", "".join(f"{line}\n" for line in lines[start : start + each])


def _timed(number: int, random: np.random.Generator, engine: str, official: bool = True, repeats: int = 0) -> dict:
    """A run of one engine on one process; of four, three have a measured machine."""
    official_one = challenge.PROBLEMS[random.integers(len(challenge.PROBLEMS))]
    neurons, layers = (official_one.neurons, official_one.layers) if official else OTHERS[number % len(OTHERS)]
    inputs = int(random.choice([challenge.INPUTS] * 5 + [1000, 6000])) if official else int(random.integers(10, 60_001))
    reductions = REDUCTIONS[random.integers(len(REDUCTIONS))]
    repeats, edges = repeats or int(random.integers(3, 21)), 32 * neurons * layers
    rate = 10 ** random.uniform(9, 13)
    seconds = [float(value) for value in edges * inputs / rate * random.lognormal(0, 0.05, repeats)]
    record = made_record("-", seconds, reductions, official=official, neurons=neurons, layers=layers, inputs=inputs)
    record["problem"]["network_identity"] = _digest(neurons, layers, official)
    if not official:
        record["problem"]["inputs_sha256"] = _digest(neurons, inputs)
    _survive(record, neurons, inputs, random.uniform(0.6, 0.9))
    _place(record, MACHINES[random.integers(len(MACHINES))], engine, int(2 ** random.integers(0, 7)))
    record["case"] = f"{neurons}-{layers}.{engine}.{'+'.join(reductions) or 'none'}.t{record['threads']}.{number}"
    if random.random() < 0.75:
        load = 4 * record["result"]["edges_computed"] / min(seconds) * random.uniform(1.2, 9)
        record = measured(record, load=load)
        for name in limits.RATES:
            best = record["machine"][name]
            best[:0] = [best[0] * part for part in (0.9, 0.97, 0.99)]
        if engine.startswith("cuda"):
            record["machine"]["instruction_set"] = "sm_90"
        record["result"]["bytes_moved"] = int(load / 40 * min(seconds))
    return record


def _survive(record: dict, neurons: int, inputs: int, decay: float) -> None:
    """Give the record as many survivors as the truth of its width has, or three of a hundred inputs."""
    found = challenge.TRUTH_COUNT.get(neurons, 0) if inputs == challenge.INPUTS else 0
    found = found or inputs * 3 // 100
    layers, result, verdict = record["problem"]["layers"], record["result"], record["verdict"]
    result["survivors"] = [max(found, int(inputs * decay**layer)) for layer in range(1, layers)] + [found]
    result["categories"] = verdict["categories"] = verdict["expected"] = verdict["values"]["checked"] = found


def _place(record: dict, machine: tuple, engine: str, threads: int) -> None:
    cpu, cores, memory, gpu = machine
    record["environment"] |= {"cpu": cpu, "cores": cores, "memory_bytes": memory, "gpu": gpu}
    record["environment"]["command"] = f"spdnn infer {record['problem']['neurons']} --engine {engine} --repeats 5"
    record["engine"] = {"name": engine, "notes": {"instruction_set": "x86_64_v4", "tile": 32, "batches": 1,
                        "batch_inputs": record["problem"]["input_count"],
                        "pass_log": [[12, 512, 0.25], [12, 1024, 0.125], [96, 2048, 0.5]]}}  # fmt: skip
    record["threads"] = threads
    found = {"dead": {"rows_may_leave_before_layer": 1}, "inputs": {"looks": 3, "merged": 58_000},
             "neurons": {"edges": 17 * record["problem"]["neurons"], "seconds": 0.25}}  # fmt: skip
    record["reductions"]["found"] = {name: found[name] for name in record["reductions"]["requested"]}


def _compared(number: int) -> dict:
    """One of three programs on one problem; the others have the numbers beside it."""
    first = number - number % 20
    engine = PEERS[number % 20 - 11]
    record = _timed(number, np.random.default_rng([SEED, first]), engine, repeats=5)
    seconds = [value * (1 + number % 20 - 11) for value in record["inference_seconds"]]
    if engine != "cpu":
        record["engine"]["notes"] = {"library": f"The library {engine} 1.2", "threads_used": 1}
    return {**_retimed(record, seconds), "comparison": f"{first:016x}"}


def _distributed(number: int, random: np.random.Generator) -> dict:
    partition = ("static", "cyclic", "rebalanced")[number // 20 % 3]
    record = _timed(number, random, "cpu")
    ranks = int(random.choice([2, 2, 4, 4, 8, 16]))
    record = spread(record, ranks, partition, uneven=float(random.uniform(1, 1.5)), hosts=max(1, ranks // 8))
    record["case"] += f".r{ranks}-{partition}"
    return record


def _task_graph(number: int, random: np.random.Generator) -> dict:
    record = copy.deepcopy(_scheduled(*SCHEDULES[number // 20 % len(SCHEDULES)]))
    factor, notes = float(random.uniform(0.5, 2)), record["engine"]["notes"]
    notes["timeline"] = [[*span[:6], span[6] * factor, span[7] * factor] for span in notes["timeline"]]
    record["environment"]["cpu"] = MACHINES[random.integers(len(MACHINES))][0]
    record["case"] += f".{number}"
    return _retimed(record, [value * factor for value in record["inference_seconds"]])


@cache
def _scheduled(schedule: str, devices: int) -> dict:
    return scheduled(schedule, devices)


def _retimed(record: dict, seconds: list[float]) -> dict:
    """The record with as many other inference seconds; without a machine, whose limit stays."""
    return {**record, "machine": None, "inference_seconds": seconds}


def _hostile(record: dict, number: int, random: np.random.Generator) -> dict:
    """The record with names that look like code, control characters and text of any length."""
    one, other, third = (HOSTILES[place] for place in random.choice(len(HOSTILES), 3, replace=False))
    record["case"] = f"{number} {one}"[:200]
    record["engine"] = {"name": other[:60], "notes": {one: other, "nested": {third: [one, {"x": None}]}, "a": one * 50}}
    record["problem"]["network"] |= {"source": third, other: one}
    record["problem"]["inputs"] = {"source": one, "file": other}
    record["environment"] |= {"cpu": third, "command": one * 20, "commit": other, "versions": {one: third}}
    record["verdict"]["truth"]["source"] = one
    record["verdict"]["values"]["rule"] = other
    return record


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
