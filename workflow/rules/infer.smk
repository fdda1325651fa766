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
        gpus_per_task=lambda wildcards: estimates.devices(case_of(wildcards)),
        nodes=1,
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
        **needed(estimates.infer, nodes=int(of_site("infer_ranks", "nodes") or 1)),
        mpi=program("mpiexec"),
        tasks=lambda wildcards: CASES[wildcards.case].ranks,
        gpus_per_task=lambda wildcards: estimates.devices(case_of(wildcards)),
    params:
        **inference("spdnn.pipeline.distributed.run"),
        launch=lambda wildcards, resources: f"{launcher(resources)} -n {resources.tasks} ",


# Snakemake takes a site's slurm_extra in place of a rule's. Here it follows the request for the devices of a case.
if ELSEWHERE:
    for asked in (workflow.get_rule(name).resources for name in ("infer", "infer_ranks")):
        asked["slurm_extra"] = after_devices(asked)
