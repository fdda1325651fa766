# network -> prepared network: reductions found by looking, in the layout of the engine. Depths share one.
rule prepare:
    input:
        lambda wildcards: f"results/networks/{prepared_case(wildcards).network}.safetensors",
    output:
        "results/prepared/{prepared}.safetensors",
    log:
        "results/logs/prepare/{prepared}.log",
    benchmark:
        "results/times/prepared/{prepared}.tsv"
    conda:
        "../../envs/spdnn.yaml"
    resources:
        **needed(estimates.prepare),
    params:
        engine=lambda wildcards: prepared_case(wildcards).engine,
        reductions=lambda wildcards: prepared_case(wildcards).reductions,
        memory=config["memory"] or given_memory,
        code=lambda wildcards: engine_code(prepared_case(wildcards).engine),
    script:
        "../scripts/prepare.py"
