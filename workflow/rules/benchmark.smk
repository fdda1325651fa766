# samples + verdict + the time of each stage -> run record. A verdict that is not pass ends here: nothing unverified has a number.
rule benchmark:
    input:
        samples="results/runs/{case}/samples.json",
        verdict="results/runs/{case}/verdict.json",
        inputs=lambda wildcards: f"results/times/inputs/{CASES[wildcards.case].inputs}.tsv",
        network=lambda wildcards: f"results/times/networks/{CASES[wildcards.case].network}.tsv",
        prepared=lambda wildcards: f"results/times/prepared/{CASES[wildcards.case].prepared}.tsv",
        infer="results/times/infer/{case}.tsv",
        verify="results/times/verify/{case}.tsv",
    output:
        "results/records/{case}.json",
    log:
        "results/logs/benchmark/{case}.log",
    conda:
        "../../envs/spdnn.yaml"
    params:
        case=lambda wildcards: CASES[wildcards.case],
        memory=config["memory"],
        configfiles=CONFIGFILES,
        code=code_digest("spdnn.measure.record"),
    script:
        "../scripts/benchmark.py"
