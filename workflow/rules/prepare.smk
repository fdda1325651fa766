# network -> prepared network: reductions found by looking, in the layout of the engine. Depths share one.
rule prepare:
    input:
        lambda wildcards: f"results/networks/{case_of(wildcards).network_name}.safetensors",
        RULES.device_check,
        trigger=TRIGGERS.of("prepared"),
    output:
        temp("results/prepared/{prepared}.safetensors"),
    log:
        "results/logs/prepare/{prepared}.log",
    benchmark:
        "results/times/prepared/{prepared}.tsv"
    resources:
        **RULES.needed(estimates.prepare),
        machine=1,
    params:
        engine=lambda wildcards: case_of(wildcards).engine,
        reductions=lambda wildcards: case_of(wildcards).reductions,
        memory=RULES.prepared_memory,
    script:
        "../scripts/prepare.py"
