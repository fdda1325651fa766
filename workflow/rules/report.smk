# run records, those of other machines + published baselines -> report.html, and the same page in `snakemake --report`.
rule report:
    input:
        records=expand("results/records/{case}.json", case=CASES),
        measured=sorted(glob("results/measured/*/*.jsonl")),
        peers=["results/peers"] if PEERS else [],
        baselines="config/baselines.csv",
    output:
        report(
            "results/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"page": "verdicts and throughput"},
        ),
    log:
        "results/logs/report/report.log",
    conda:
        "../../envs/spdnn.yaml"
    params:
        code=code_digest("spdnn.report"),
    script:
        "../scripts/report.py"
