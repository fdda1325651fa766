# run records of this configuration, those that `other_records` names + published baselines -> report.html and its
# figures, and both in `snakemake --report`. Runs where Snakemake does: it takes seconds.
rule report:
    input:
        records=expand("results/records/{case}.json", case=CASES),
        peers=["results/peers"] if PEERS else [],
        ops=["results/ops/operations.jsonl"] if OPS else [],
        others=OTHER_FILES,
        baselines=str(table("baselines.csv")),
        trigger=trigger_of_report,
    output:
        page=report(
            "results/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"page": "verdicts and throughput"},
        ),
        figures=report(
            directory("results/figures"),
            patterns=["{category}/{name}.svg"],
            caption="../report/figures.rst",
            category="{category}",
            labels={"figure": "{name}"},
        ),
        summary="results/summary.txt",
    log:
        "results/logs/report/report.log",
    localrule: True
    threads: CORES
    resources:
        machine=1,
    params:
        cases=list(CASES),
        decided=SAID,
        others=list(OTHERS),
    script:
        "../scripts/report.py"


# No two runs share a folder. What is to run is written down before anything runs, so that whatever ends it, a page can
# tell what is missing.
onstart:
    from spdnn.runs.records.cases import write_cases

    lifecycle.end_with_jobs()
    try:
        lifecycle.check_executor(workflow.executor_plugin.name)
        lifecycle.check_groups(workflow.group_settings.overwrite_groups)
        lifecycle.lock(Path("results"))
        TRIGGERS.settle()
        slurm.watch(Path.cwd(), workflow.executor_plugin.name)
        DECIDED.write()
        command, made = ["snakemake", *sys.argv[1:]], {"peers": bool(PEERS), "ops": bool(OPS)}
        write_cases("results/cases.json", CASES, workflow.overwrite_configfiles, command, **made, decided=SAID)
        for sentence in SAID:
            say(f"spdnn: {sentence}", "stderr")
    except SpdnnError as error:
        raise WorkflowError(str(error))


# A run that fails has a page too, of what it made until then; its status stays what it is. Who stops a run wants none.
# Snakemake must forget the page that it knew, for the next run is to make its own.
onerror:
    if (
        workflow.scheduler.failed
        and not lifecycle.interrupted.is_set()
        and RULES.not_made() & {*rules.report.output}
    ):
        from spdnn.report.unfinished import report_unfinished

        workflow.persistence.cleanup_metadata(rules.report.output.page)
        given = rules.report.input
        report_unfinished(list(CASES), RULES.not_made(), [*given.peers, *given.ops], OTHERS, given.baselines, SAID)


# What no job needs any more goes, also what a killed run left; three lines say what came out. Where nobody reads them, or
# a disk is full, the run has still succeeded.
onsuccess:
    if not workflow.storage_settings.notemp:
        RULES.remove_temporary()
    if any(rules.report.output.page in job.output for job in workflow.dag.jobs):
        say(Path(rules.report.output.summary).read_text("utf-8").rstrip("\n"))
