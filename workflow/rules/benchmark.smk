# samples + verdict + the time of each stage -> run record. A verdict that is not pass ends here: nothing unverified has a number.
# Runs where Snakemake does: it reads a few small files.
rule benchmark:
    input:
        samples="results/runs/{case}/samples.json",
        verdict="results/runs/{case}/verdict.json",
        inputs=lambda wildcards: f"results/times/inputs/{case_of(wildcards).inputs_name}.tsv",
        network=lambda wildcards: f"results/times/networks/{case_of(wildcards).network_name}.tsv",
        prepare=lambda wildcards: f"results/times/prepared/{case_of(wildcards).prepared_name}.tsv",
        infer="results/times/infer/{case}.tsv",
        verify="results/times/verify/{case}.tsv",
        trigger=TRIGGERS.of("benchmark"),
    output:
        "results/records/{case}.json",
    log:
        "results/logs/benchmark/{case}.log",
    localrule: True
    resources:
        machine=1,
    params:
        request=lambda wildcards: case_of(wildcards).values,
        configuration=CONFIGURATION,
    script:
        "../scripts/benchmark.py"
