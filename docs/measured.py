"""Numbers of the documentation, made from records in results/measured/ and from published results, and nothing else.

python docs/measured.py                renders the tables of README.md and docs/results.md, and docs/networks.svg
python docs/measured.py measure NAME   runs the twelve networks here, into results/measured/NAME/twelve.jsonl

Twelve networks with all reductions, and with dead inputs alone as published systems leave them out (like for like): the
second takes a quarter of an hour on two idle cores. A table stands between two comments, `<!-- measured: NAME -->` and
`<!-- /measured -->`; one that no record is for is left as it is.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spdnn.problem import challenge
from spdnn.records.files import read_all
from spdnn.records.published import DEVICES, Baseline, read_baselines
from spdnn.records.run_record import RunRecord

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/results.md")
PICTURE = ROOT / "docs/networks.svg"
BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)
KINDS = {"all": ["dead", "inputs", "neurons"], "dead": ["dead"]}  # reductions of a run
LONG = 10**13  # nominal edges from which a run of dead inputs alone is repeated once
Size = tuple[int, int]


def runs() -> dict[tuple[Size, str], RunRecord]:
    """By ((neurons, layers), kind): the latest record of the twelve on the official inputs, of engine cpu, one rank."""
    records, _ = read_all(sorted(ROOT.glob("results/measured/*/*.jsonl")))
    found = {}
    for record in sorted(records, key=lambda one: one.created):
        problem = record.problem
        kind = next((kind for kind, names in KINDS.items() if names == record.reductions.requested), None)
        whole = problem.official and problem.input_count == challenge.INPUTS
        if kind and whole and record.engine.name == "cpu" and record.ranks == 1 and not record.comparison:
            found[(problem.neurons, problem.layers), kind] = record
    return found


def published() -> dict[tuple[Size, str], Baseline]:
    """By ((neurons, layers), "one" or "any" device): the fastest exact published figure."""
    best = {}
    for row in read_baselines():
        if row.neurons and row.edges_per_second and not row.lossy:
            for devices in ("any", *(["one"] if row.device_class == DEVICES[0] else [])):
                key = (row.neurons, row.layers), devices
                if key not in best or row.edges_per_second > best[key].edges_per_second:
                    best[key] = row
    return best


def seconds(time: float) -> str:
    return f"{1000 * time:.3g} ms" if time < 1 else f"{time:.3g} s"


def rate(one: RunRecord | Baseline | None) -> str:
    """TeraEdges/s, to two digits."""
    if one is None:
        return ""
    each = one.edges_per_second
    tera = (each.median if isinstance(one, RunRecord) else each) / 1e12
    return f"{tera:.0f}" if tera >= 10 else f"{tera:.2g}"


def source(records: Sequence[RunRecord]) -> str:
    """Machine, date and commit of some records, in a sentence."""
    environments = [record.environment for record in records]
    machines = sorted({f"{one.cores} cores of an {one.cpu}" for one in environments})
    days = sorted({record.created[:10] for record in records})
    commits = sorted({one.commit for one in environments if one.commit})
    return f"{' and '.join(machines)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}, commit {', '.join(commits)}"


def first(ours: dict, theirs: dict) -> str | None:
    """The README's table of four rows."""
    small, large = (1024, 120), (65536, 1920)
    rows = [(small, "dead", "dead inputs alone"), (small, "all", "all three"), (large, "all", "all three")]
    if not all((size, kind) in ours for size, kind, _ in rows) or not ours[large, "all"].time_to_solution:
        return None
    lines = [
        "| network | reductions | time, and what it includes | TeraEdges/s | best published, one device |",
        "|---|---|---|---|---|",
    ]
    for size, kind, words in rows:
        one, best = ours[size, kind], theirs.get((size, "one"))
        cells = [_name(size), words, f"{_median(one)}, inference", rate(one), rate(best)]
        lines.append(f"| {' | '.join(cells)} |")
    one = ours[large, "all"]
    spent = one.time_to_solution.seconds
    cells = [_name(large), "all three", f"{seconds(spent)}, from nothing to verified categories"]
    lines.append(f"| {' | '.join(cells)} | {one.problem.work / spent / 1e12:.2g} | |")
    return "\n".join([*lines, "", f"{source(list(ours.values()))}.", ""])


def _name(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _median(record: RunRecord) -> str:
    return seconds(statistics.median(record.seconds))


def twelve(ours: dict, theirs: dict) -> str | None:
    """A row for each of the twelve networks."""
    if not ours:
        return None
    head = ["network", "inference, all three", "TeraEdges/s", "really computed, billion edges/s"]
    head += ["inference, dead inputs alone", "TeraEdges/s", "best published, one device", "on any"]
    head += ["to solution", "prepare", "peak GiB"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        one, fair = ours.get((size, "all")), ours.get((size, "dead"))
        cells, last = [_name(size), "", "", ""], ["", "", ""]
        if one:
            computed = one.result.edges_computed / statistics.median(one.seconds) / 1e9
            cells[1:] = [_median(one), rate(one), f"{computed:.0f}"]
            spent, prepare = one.time_to_solution, statistics.median(one.samples.prepare_seconds)
            last = [seconds(spent.seconds) if spent else "", seconds(prepare), f"{one.peak_memory_bytes / 2**30:.2g}"]
        cells += [_median(fair), rate(fair)] if fair else ["", ""]
        cells += [rate(theirs.get((size, "one"))), rate(theirs.get((size, "any"))), *last]
        lines.append(f"| {' | '.join(cells)} |")
    last = ours[max(ours, key=lambda key: (key[1] == "all", key[0]))]
    told = f"{source(list(ours.values()))}. Command of the last row: `{last.environment.command}`."
    return "\n".join([*lines, "", told, ""])


def shown(ours: dict, theirs: dict) -> str | None:
    """The README's picture, where there is something of ours to show."""
    told = (
        "TeraEdges/s of each of the twelve networks: ours with all reductions and like for like, and the best published"
    )
    return f"![{told}](docs/networks.svg)\n" if ours else None


TABLES = {"first": first, "twelve": twelve, "picture": shown}


def rendered(page: str) -> str:
    """The text of a page with its tables as records have them."""
    ours, theirs = runs(), published()

    def table(match: re.Match) -> str:
        made = TABLES[match[2]](ours, theirs)
        return match[0] if made is None else f"{match[1]}\n{made}\n{match[4]}"

    return BLOCK.sub(table, (ROOT / page).read_text(encoding="utf-8"))


def draw(target: Path) -> None:
    """The report's figure of every network, of the records that are committed."""
    folders = sorted(ROOT.glob("results/measured/*/"))
    command = ["plot", "overview", *folders, "-o", target, "--width", "9in", "--style", "page"]
    subprocess.run([sys.executable, "-m", "spdnn", *map(str, command)], check=True)


def measure(name: str) -> None:
    """Run the twelve networks of both kinds, and write their records to results/measured/`name`/twelve.jsonl."""
    folder = ROOT / "results/measured" / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, open(folder / "twelve.jsonl", "a", encoding="utf-8") as lines:
        for kind in KINDS:
            for problem in challenge.PROBLEMS:
                repeats = 1 if kind == "dead" and problem.edges * challenge.INPUTS > LONG else 5
                words = ["challenge", "--neurons", problem.neurons, "--layers", problem.layers, "--inputs", "mnist"]
                words += ["--reductions", kind, "--repeats", repeats, "--no-cache", "--record", f"{place}/run.json"]
                subprocess.run([sys.executable, "-m", "spdnn", *map(str, words)], check=True)
                lines.write(" ".join(Path(place, "run.json").read_text(encoding="utf-8").split("\n")).strip() + "\n")
                lines.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2])
    for each in PAGES:
        (ROOT / each).write_text(rendered(each), encoding="utf-8")
    draw(PICTURE)
