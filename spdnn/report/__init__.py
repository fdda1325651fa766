"""The report: one self-contained page from run records, verdicts and published results, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spdnn.baselines import read_baselines
from spdnn.errors import Unavailable
from spdnn.files import write_text
from spdnn.records import read_records, read_verdict
from spdnn.report import figures, model, scaling, scaling_figures, series, timelines, words

HERE = Path(__file__).resolve().parent


def render(
    record_paths: Sequence[Path],
    verdict_paths: Sequence[Path],
    output: Path,
    baselines_path: Path | None = None,
) -> int:
    """Write the page to `output`; the same records give the same bytes. The number of records is returned.

    Args:
        record_paths: files of run records (.json: one; .jsonl: one on each line); each record
            holds the verdict that allowed it.
        verdict_paths: verdicts, passed or failed; the case of each is the name of its folder. A failed verdict
            is shown as a failure, and takes every number of its case off the page.
        output: an .html file in a folder that exists.
        baselines_path: the table of published results; by default, the project's.

    Raises:
        InputError: a record, verdict or table that is not sound.
        Unavailable: a package the report needs is absent.
    """
    records = [record for path in record_paths for record in read_records(path)]
    verdicts = [(Path(path).resolve().parent.name, read_verdict(path)) for path in verdict_paths]
    page = model.page(records, verdicts, read_baselines(baselines_path))
    text = _template().render(
        **page, figures=_figures(page), words=words, series=series, style=(HERE / "style.css").read_text("utf-8")
    )
    write_text(output, text)
    return len(records)


def _figures(page: dict) -> dict[str, str]:
    """The SVG of each figure that has something to show, by name."""
    found = {}
    if points := series.points(page["networks"]):
        found["throughput"] = figures.throughput(points, "TeraEdges/s of this project beside published results")
    if curves := series.curves(page["own"]):
        found["survivors"] = figures.survivors(curves, "Inputs with a nonzero row after each layer")
    for one in series.ladders(page["own"]):
        problem = one["run"]["record"]["problem"]
        title = f"Inference seconds by setting, {problem['neurons']} neurons, {problem['layers']} layers"
        found[one["id"]] = figures.ladder(one["rungs"], title, one["id"])
    return found | _scaling_figures(page["scaling"]) | _schedule_figures(page["schedules"])


def _scaling_figures(section: dict | None) -> dict[str, str]:
    found = {}
    for group in section["groups"] if section else ():
        if group["kind"] != scaling.OTHER:
            size = f"{group['neurons']} neurons, {group['layers']} layers"
            title = f"{group['kind'].title()} scaling, {size}: time, speed-up, efficiency, imbalance by ranks"
            found[group["id"]] = scaling_figures.scaling(group["rows"], title, group["id"])
    for one in section["published"] if section else ():
        title = f"Published scaling of {words.printable(one['system'])}: TeraEdges/s and efficiency by devices"
        found[one["id"]] = scaling_figures.published(one["curves"], one["hardware"], title, one["id"])
    return found


def _schedule_figures(section: dict | None) -> dict[str, str]:
    found = {}
    for group in section["groups"] if section else ():
        name, size = group["id"], f"{group['neurons']} neurons, {group['layers']} layers"
        for suffix, key, kind in (("", "timeline", "Measured"), ("-predicted", "simulated", "Predicted")):
            panels = [(row["label"], row[key]) for row in group["measured" if key == "timeline" else key]]
            if panels:
                title = f"{kind} timelines of schedules, {size}: what each lane did when"
                found[name + suffix] = timelines.gantt(panels, title, name + suffix)
        known = [row for row in group["rows"] if row["memory"]]
        if len(known) > 1:
            title = f"Inference seconds over memory of a device, {size}"
            found[f"{name}-memory"] = timelines.memory(known, title, f"{name}-memory")
    return found


def _template():
    try:
        import jinja2
    except ImportError as error:
        raise Unavailable("the report needs jinja2: pip install 'spdnn[report]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        significant=words.significant, tera=words.tera, plural=words.plural, printable=words.printable
    )
    return environment.get_template("template.html.j2")
