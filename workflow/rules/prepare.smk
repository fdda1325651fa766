# network -> prepared network: reductions found by looking, in the layout of the engine. Depths share one.
def prepared_case(wildcards):
    """A case that runs this prepared network; all of them agree on what is prepared."""
    return next(case for case in CASES.values() if case.prepared == wildcards.prepared)


rule prepare:
    input:
        lambda wildcards: f"results/networks/{prepared_case(wildcards).network}.h5",
    output:
        "results/prepared/{prepared}.h5",
    log:
        "results/logs/prepare/{prepared}.log",
    conda:
        "../../envs/spdnn.yaml"
    params:
        case=prepared_case,
        code=lambda wildcards: engine_code(prepared_case(wildcards).engine),
    script:
        "../scripts/prepare.py"
