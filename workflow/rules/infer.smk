# prepared network (and the one it was made of) + inputs -> categories, row sums and samples. Takes every core, so that nothing runs beside a clock.


rule infer:
    input:
        **stores(TARGETS, "network", "prepared", "inputs"),
        trigger=TRIGGERS.of("infer"),
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
        machine=100,
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
        **RULES.needed(estimates.infer, spread=True),
        machine=100,
        nodes=lambda wildcards: RULES.nodes(case_of(wildcards)),
        mpi=RULES.program("mpiexec"),
        tasks=lambda wildcards: CASES[wildcards.case].ranks,
        gpus_per_task=lambda wildcards: estimates.devices(case_of(wildcards)),
    params:
        **RULES.inference(ranks=True),


# What jobs on devices will find on the nodes of a cluster: CuPy, the driver, a device for each rank and MPI, tried by one
# verified layer before anything is prepared for them.
rule check_devices:
    output:
        temp(touch("results/checks/{engine}.ok")),
    log:
        "results/logs/check_devices/{engine}.log",
    wildcard_constraints:
        engine="[a-z-]+",
    resources:
        machine=1,
        mem_mb=lambda wildcards, attempt: attempt * 4000 * RULES.checked(wildcards.engine)[0],
        runtime=lambda wildcards, attempt: attempt * 10,
        tasks=lambda wildcards: RULES.checked(wildcards.engine)[0],
        gpus_per_task=lambda wildcards: RULES.checked(wildcards.engine)[1],
    params:
        python=lambda wildcards, resources: RULES.program("python"),
        launch=lambda wildcards, resources: launch(resources),
        devices=lambda wildcards, resources: (
            f"--devices {resources.gpus_per_task}" if resources.gpus_per_task > 1 else ""
        ),
        code=lambda wildcards: code("infer", wildcards.engine),
    shell:
        CHECK


# A site's slurm_extra follows the request for the devices of a case.
if ELSEWHERE:
    RULES.add_devices()
