"""`spdnn info` and `spdnn completion`: engines and measured limits of this machine, completion for its shell."""

import json
from dataclasses import asdict

from spdnn.cli import arguments
from spdnn.cli.terminal import show
from spdnn.core.shown import plural
from spdnn.core.table import Column, Table, Unit

ENGINES = Table(
    "Engines",
    [
        Column("engine", lambda engine: engine.name),
        Column("runs here", lambda engine: f"no: {engine.missing()}" if engine.missing() else "yes"),
        Column("reductions", lambda engine: ", ".join(engine.offers) or "none"),
        Column("what it is", lambda engine: engine.summary),
    ],
)
CEILINGS = {  # what was measured, its unit, and what it includes
    "copy_bytes_per_second": ("memory", "GB/s", "bytes read + bytes written, memory to memory, past every cache"),
    "load_bytes_per_second": ("nearest cache", "GB/s", "vector loads from the first-level cache, added up"),
    "l2_load_bytes_per_second": ("second cache", "GB/s", "the same from the second-level cache"),
    "fma_per_second": ("arithmetic", "billion FMA/s", "float32 multiply-adds in registers, nothing loaded"),
}
LIMITS = Table(
    "Limits",
    [
        Column("limit", lambda row: row[1][0]),
        Column("measured", lambda row: row[0] / 1e9, Unit(write="{:.1f}".format)),
        Column("unit", lambda row: row[1][1]),
        Column("includes", lambda row: row[1][2]),
    ],
)


def add(command) -> None:
    command.description = (
        "List the engines that run here, and what the others need. Measure the limits of this machine: memory, caches, "
        "arithmetic. Every run measures them too, for its record."
    )
    arguments.option(command, "threads", help="number of threads (default: all usable cores)")
    command.add_argument(
        "--seconds", type=_seconds, default=0.2, metavar="S", help="seconds to spend in all (default: 0.2)"
    )
    command.add_argument("--json", metavar="FILE", help="also write the result, with all samples, as JSON")
    command.set_defaults(run=_info, reads=(), writes=("json",))


def _seconds(text: str) -> float:
    from spdnn.core.limits import LONGEST_MEASURING

    return arguments.number(
        text, float, lambda n: 0 < n <= LONGEST_MEASURING, f"a number above 0 and at most {LONGEST_MEASURING:g}"
    )


def _info(args) -> None:
    from spdnn.core import provenance
    from spdnn.core.files import write_text
    from spdnn.core.validation import builtins
    from spdnn.engines.cpu.ceilings import caches, measure
    from spdnn.engines.registry import engine, names

    threads = arguments.threads(args.threads)
    show(ENGINES, sorted((engine(name, usable=False) for name in names()), key=lambda one: bool(one.missing())))
    best = measure(threads, args.seconds)
    environment = provenance.environment("spdnn info")
    sizes = [
        f"level {cache.level} {cache.bytes / 1024:,.0f} KiB{f' shared by {cache.shared_by}' * (cache.shared_by > 1)}"
        for cache in caches()
    ]
    print(f"\n{environment['cpu']}, {plural(environment['cores'], 'usable core')}; caches: {', '.join(sizes)}")
    print(f"measured with {plural(threads, 'thread')}, {best.instruction_set}, the best of short windows:")
    show(LIMITS, [(getattr(best, name), words) for name, words in CEILINGS.items()])
    if args.json:
        content = {
            "machine": builtins(best),
            "caches": [asdict(cache) for cache in caches()],
            "environment": environment,
        }
        write_text(args.json, json.dumps(content, indent=1) + "\n")


def add_completion(command) -> None:
    command.description = (
        "Print a script that completes `spdnn` in a shell. Load it where the shell starts:\n"
        "  bash: spdnn completion bash > ~/.local/share/bash-completion/completions/spdnn\n"
        "  zsh:  spdnn completion zsh > a folder of $fpath, as _spdnn"
    )
    command.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="shell to print it for")
    command.set_defaults(run=_completion)


def _completion(args) -> None:
    from spdnn.cli import parser
    from spdnn.core.errors import Unavailable, install

    try:
        import shtab
    except ImportError:
        raise Unavailable(f"the package shtab is not installed; {install('full')} brings it") from None
    print(shtab.complete(parser(), args.shell))
