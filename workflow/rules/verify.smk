# result -> verdict: the official truth where it applies, a file or the oracle elsewhere.
rule verify:
    input:
        result="results/runs/{case}/result.npz",
        network=lambda wildcards: f"results/networks/{CASES[wildcards.case].network}.safetensors",
        inputs=lambda wildcards: f"results/inputs/{CASES[wildcards.case].inputs}.safetensors",
    output:
        "results/runs/{case}/verdict.json",
    log:
        "results/logs/verify/{case}.log",
    benchmark:
        "results/times/verify/{case}.tsv"
    conda:
        "../../envs/spdnn.yaml"
    resources:
        **needed(estimates.verify),
    params:
        case=lambda wildcards: CASES[wildcards.case],
        truth=lambda wildcards: (
            "official" if CASES[wildcards.case].official else OWN.get(CASES[wildcards.case].network, {}).get("truth")
        ),
        edges=float(config["verify"]["edges"]),
        seed=config["verify"]["seed"],
        code=code_digest("spdnn.measure.judging"),
    script:
        "../scripts/verify.py"
