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
    threads: lambda wildcards: RULES.every_core(CASES[wildcards.case].threads)
    resources:
        **RULES.needed(estimates.infer),
        gpus_per_task=lambda wildcards: estimates.devices(case_of(wildcards)),
        nodes=1,
    params:
        **RULES.inference(ranks=False),
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
        **RULES.needed(estimates.infer, nodes=RULES.nodes("infer_ranks")),
        mpi=RULES.program("mpiexec"),
        tasks=lambda wildcards: CASES[wildcards.case].ranks,
        gpus_per_task=lambda wildcards: estimates.devices(case_of(wildcards)),
    params:
        **RULES.inference(True, "spdnn.pipeline.distributed.run"),


# A site's slurm_extra follows the request for the devices of a case.
if ELSEWHERE:
    RULES.add_devices("infer", "infer_ranks")
