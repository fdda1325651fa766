# result -> verdict: the official truth where it applies, a file or the oracle elsewhere.
rule verify:
    input:
        **stores(TARGETS, "network", "inputs"),
        result="results/runs/{case}/result.npz",
        truth=lambda wildcards: case_of(wildcards).truth_file or [],
        trigger=TRIGGERS.of("verify"),
    output:
        "results/runs/{case}/verdict.json",
    log:
        "results/logs/verify/{case}.log",
    benchmark:
        "results/times/verify/{case}.tsv"
    resources:
        **RULES.needed(estimates.verify),
        machine=1,
    params:
        request=lambda wildcards: case_of(wildcards).values,
    script:
        "../scripts/verify.py"
