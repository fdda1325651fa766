"""The problem and the costs that `spdnn plan --cut` predicts with: from a record, or from rates entered by hand."""

import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np

from spdnn.cli import arguments
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.request import reading

TILE = 32  # inputs computed together, where no record has a number
MOST_DEVICES = 4096
RATES = ("edges_per_second", "copy_bandwidth")
LATENCY, BANDWIDTH = 2e-6, 1e10  # of messages: seconds, bytes a second


def problem_of(args) -> tuple:
    """(its name, request, costs of tasks, sizes, cores that devices share, where costs and rows come from).

    Raises:
        InputError: arguments that do not say what to compute, or what it costs.
    """
    from spdnn.engines.costs.costs import MessageCosts
    from spdnn.engines.taskgraph.settings import TaskgraphSettings
    from spdnn.engines.taskgraph.simulation import sizes_of

    request = TaskgraphSettings(**arguments.settings(args))
    if request.devices > MOST_DEVICES:
        raise InputError(f"{request.devices} devices: at most {MOST_DEVICES:,}")
    if (args.layers is None) != (args.neurons is None):
        raise InputError("--neurons and --layers go together, and say which official network it is")
    priced = args.latency or args.bandwidth or not args.record
    messages = MessageCosts(args.latency or LATENCY, args.bandwidth or BANDWIDTH) if priced else None
    problem = _from_record(args, request.devices, messages) if args.record else _by_hand(args, messages)
    name, costs, cores, priced = problem
    return name, request, costs, sizes_of(costs.work, costs.device), cores, priced


def _from_record(args, devices: int, messages) -> tuple:
    from spdnn.runs.calibration import costs_of
    from spdnn.runs.records.files import read_record

    if args.edges_per_second:
        raise InputError("--edges-per-second and --record exclude each other: a record has its own rate")
    record = read_record(args.record)
    costs, cores = costs_of(record, devices, messages, args.copy_bandwidth)
    origin = f"calibrated by {record.case}, measured {statistics.median(record.seconds):.4g} s"
    if not (args.neurons or args.network):
        if args.inputs:
            costs = replace(costs, work=costs.work.of(args.inputs), row_shares=lambda batches: None)
        return record.case, costs, cores, f"{origin}; rows are those that its run had left"
    name, work, order, rows = _from_names(args)
    # The part of an edge, and of its bytes, that its reductions left; rows of another problem may not merge.
    left = costs.work.edges.sum() / max(1, record.problem.edges)
    nbytes = costs.work.weight_bytes.sum() / max(1.0, costs.work.edges.sum())
    work = replace(work, edges=left * work.edges, weight_bytes=left * nbytes * work.edges)
    return name, replace(costs, work=work, row_shares=order), cores, f"{origin}; {rows}"


def _by_hand(args, messages) -> tuple:
    from spdnn.engines.costs.costs import DeviceCosts
    from spdnn.engines.taskgraph.simulation import TaskCosts

    if not (args.neurons or args.network):
        raise InputError("no problem is named: give --neurons and --layers, --network or --record")
    if not args.edges_per_second:
        raise InputError(
            "the cost of a layer is not known: give --record run.json, or --edges-per-second and, for weights that are "
            "streamed, --copy-bandwidth"
        )
    device = DeviceCosts(
        (1 / args.edges_per_second,), 0.0, 0.0, tiles=(TILE,),
        copy_bytes_per_second=args.copy_bandwidth,
    )  # fmt: skip
    name, work, order, rows = _from_names(args)
    return name, TaskCosts(work, device, messages, row_shares=order), None, f"by the rates given; {rows}"


def _from_names(args) -> tuple:
    """(name, work, order of the batches' shares, where the rows come from) of the problem that the arguments name."""
    from spdnn.engines.costs.costs import Work
    from spdnn.engines.costs.official import official_shares, official_work
    from spdnn.formats.readers import open_network
    from spdnn.runs.calibration import WEIGHT_BYTES

    count = args.inputs or challenge.INPUTS
    if args.neurons:
        problem = challenge.problem(args.neurons, args.layers)
        work = official_work(problem.neurons, problem.layers)
        weights = np.full(problem.layers, WEIGHT_BYTES * problem.edges / problem.layers)
        work = replace(work, weight_bytes=weights).of(count)
        official = count == challenge.INPUTS
        order = lambda batches: official_shares(work, problem.neurons, batches, "static") if official else None  # noqa: E731
        return problem.name, work, order, "rows are those that the official inputs have left"
    network = open_network(args.network, **reading(args))
    headers = [network.header(k) for k in range(network.depth)]
    edges, wide, weights = (
        np.array([float(value) for value in values])
        for values in zip(
            *((header.edges, 4 * max(header.inputs, header.outputs), header.nbytes) for header in headers), strict=True
        )
    )
    rows = np.full(network.depth, float(count))
    work = Work(count, edges, rows, rows, wide, weights, network.inputs / 8)
    return Path(args.network).name, work, lambda batches: None, "no row is taken to die"
