# prepared network (and the one it was made of) + inputs -> categories, row sums and samples. Takes every core, so that nothing runs beside a clock.
rule infer:
    input:
        network=lambda wildcards: f"results/networks/{CASES[wildcards.case].network}.h5",
        prepared=lambda wildcards: f"results/prepared/{CASES[wildcards.case].prepared}.h5",
        inputs=lambda wildcards: f"results/inputs/{CASES[wildcards.case].inputs}.h5",
    output:
        categories="results/runs/{case}/categories.txt",
        result="results/runs/{case}/result.npz",
        samples="results/runs/{case}/samples.json",
    log:
        "results/logs/infer/{case}.log",
    conda:
        "../../envs/spdnn.yaml"
    threads: lambda wildcards: every_core(CASES[wildcards.case].threads)
    params:
        case=lambda wildcards: CASES[wildcards.case],
        repeats=config["repeats"],
        memory=config["memory"],
        code=lambda wildcards: engine_code(CASES[wildcards.case].engine),
    script:
        "../scripts/infer.py"
