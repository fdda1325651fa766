"""`spdnn info` and `spdnn completion`: engines and measured limits of this machine, completion for its shell."""

import json
from dataclasses import asdict

from spdnn.cli import arguments

INCLUDES = {
    "copy_bytes_per_second": ("memory", "GB/s", "bytes read + bytes written, memory to memory, past every cache"),
    "load_bytes_per_second": ("nearest cache", "GB/s", "vector loads from the first-level cache, added up"),
    "l2_load_bytes_per_second": ("second cache", "GB/s", "the same from the second-level cache"),
    "fma_per_second": ("arithmetic", "billion FMA/s", "float32 multiply-adds in registers, nothing loaded"),
}


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
    from spdnn.engines.cpu.ceilings import LONGEST

    return arguments.number(text, float, lambda n: 0 < n <= LONGEST, f"a number above 0 and at most {LONGEST:g}")


def _info(args) -> None:
    from spdnn.core import provenance
    from spdnn.core.files import write_text
    from spdnn.core.validation import builtins
    from spdnn.engines.cpu.ceilings import caches, measure

    threads = arguments.threads(args.threads)
    _print_engines()
    best = measure(threads, args.seconds)
    environment = provenance.environment("spdnn info")
    print(f"processor     {environment['cpu']}, {environment['cores']} usable cores")
    for cache in caches():
        kib, sharing = cache.bytes / 1024, f", shared by {cache.shared_by}" if cache.shared_by > 1 else ""
        print(f"cache         level {cache.level}: {kib:,.0f} KiB{sharing}")
    workers = f"{threads} thread{'s' if threads > 1 else ''}"
    print(f"measured      {workers}, {best.instruction_set}, the best of short windows")
    for name, (what, unit, includes) in INCLUDES.items():
        print(f"{what:<13} {getattr(best, name) / 1e9:8.1f} {unit:<13} {includes}")
    if args.json:
        content = {
            "machine": builtins(best),
            "caches": [asdict(cache) for cache in caches()],
            "environment": environment,
        }
        write_text(args.json, json.dumps(content, indent=1) + "\n")


def _print_engines() -> None:
    from spdnn.engines.registry import engine, names

    engines = {name: engine(name, usable=False) for name in names()}
    missing = {name: engine.missing() for name, engine in engines.items()}
    width = max(map(len, engines))
    print("engines that run here, with the reductions that they offer:")
    for name in (name for name in engines if missing[name] is None):
        listed, default = engines[name], "default: " if name == "cpu" else ""
        print(f"  {name:<{width}}  {default}{listed.summary} ({', '.join(listed.offers) or 'no reductions'})")
    print("engines that do not run here:")
    for name in (name for name in engines if missing[name]):
        print(f"  {name:<{width}}  {missing[name]}")


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
