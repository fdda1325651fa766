# prepared network (and the one it was made of) + inputs -> categories, row sums and samples. Takes every core, so that nothing runs beside a clock.


rule infer:
    input:
        **stores(TARGETS, "network", "prepared", "inputs"),
    output:
        categories="results/runs/{case}/categories.txt",
        result="results/runs/{case}/result.npz",
        samples="results/runs/{case}/samples.json",
    log:
        "results/logs/infer/{case}.log",
    benchmark:
        "results/times/infer/{case}.tsv"
    wildcard_constraints:
        case=one_of(case.name for case in CASES.values() if case.ranks == 1),
    conda:
        "../../envs/spdnn.yaml"
    threads: lambda wildcards: every_core(CASES[wildcards.case].threads)
    resources:
        **needed(estimates.infer),
        gpu=lambda wildcards: estimates.gpus(case_of(wildcards)),
    params:
        **inference(),
        launch="",
    shell:
        INFER


# The same on several ranks, on as many nodes as a cluster's scheduler spreads them over. A profile may name another
# launcher (workflow/profiles).
use rule infer as infer_ranks with:
    log:
        "results/logs/infer_ranks/{case}.log",
    wildcard_constraints:
        case=one_of(case.name for case in CASES.values() if case.ranks > 1),
    resources:
        **needed(estimates.infer),
        mpi=program("mpiexec"),
        tasks=lambda wildcards: CASES[wildcards.case].ranks,
        gpu=lambda wildcards: estimates.gpus(case_of(wildcards)),
    params:
        **inference("spdnn.distributed.run"),
        launch=lambda wildcards, resources: f"{resources.mpi} -n {resources.tasks} ",
