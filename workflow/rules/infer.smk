# prepared network (and the one it was made of) + inputs -> categories, row sums and samples. Takes every core, so that nothing runs beside a clock.


rule infer:
    input:
        network=lambda wildcards: f"results/networks/{CASES[wildcards.case].network}.safetensors",
        prepared=lambda wildcards: f"results/prepared/{CASES[wildcards.case].prepared}.safetensors",
        inputs=lambda wildcards: f"results/inputs/{CASES[wildcards.case].inputs}.safetensors",
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
        gpu=lambda wildcards: gpus(CASES[wildcards.case]),
    params:
        case=lambda wildcards: CASES[wildcards.case],
        repeats=config["repeats"],
        memory=config["memory"] or given_memory,
        code=lambda wildcards: engine_code(CASES[wildcards.case].engine),
    script:
        "../scripts/infer.py"


# The same on several ranks, on as many nodes as a cluster's scheduler spreads them over. A profile may name another
# launcher (workflow/profiles). What went wrong is told on the terminal too.
rule infer_ranks:
    input:
        network=lambda wildcards: f"results/networks/{CASES[wildcards.case].network}.safetensors",
        prepared=lambda wildcards: f"results/prepared/{CASES[wildcards.case].prepared}.safetensors",
        inputs=lambda wildcards: f"results/inputs/{CASES[wildcards.case].inputs}.safetensors",
    output:
        categories="results/runs/{case}/categories.txt",
        result="results/runs/{case}/result.npz",
        samples="results/runs/{case}/samples.json",
    log:
        "results/logs/infer_ranks/{case}.log",
    benchmark:
        "results/times/infer/{case}.tsv"
    wildcard_constraints:
        case=one_of(case.name for case in CASES.values() if case.ranks > 1),
    conda:
        "../../envs/spdnn.yaml"
    threads: lambda wildcards: every_core(CASES[wildcards.case].threads)
    resources:
        **needed(estimates.infer),
        mpi=program("mpiexec"),
        tasks=lambda wildcards: CASES[wildcards.case].ranks,
        gpu=lambda wildcards: gpus(CASES[wildcards.case]),
    params:
        case=lambda wildcards: CASES[wildcards.case],
        repeats=config["repeats"],
        limits=lambda wildcards: options(count=CASES[wildcards.case].count, memory=config["memory"]),
        cut=lambda wildcards: options(**CASES[wildcards.case].cut),
        given=lambda wildcards, resources: (
            "" if config["memory"] else options(memory=given_memory(wildcards, resources))
        ),
        # A function of resources is no reason to run again: where Python lies changes no result.
        python=lambda wildcards, resources: program("python"),
        code=lambda wildcards: engine_code(CASES[wildcards.case].engine, "spdnn.distributed.run"),
    shell:
        "{resources.mpi} -n {resources.tasks} {params.python} -m spdnn infer"
        " --network {input.network} --prepared {input.prepared} --inputs {input.inputs}"
        " --layers {params.case.layers} --engine {params.case.engine} --reductions {params.case.reductions}"
        " --threads {params.case.threads} --partition {params.case.partition} {params.limits}"
        " {params.given} {params.cut} --repeats {params.repeats}"
        " --categories {output.categories} --result {output.result} --samples {output.samples}"
        " >{log} 2>&1 </dev/null ||"
        " {{ status=$?; {{ grep '^spdnn: ' {log} | grep -v '^spdnn: warning: ' || tail -n 20 {log}; }} >&2; exit $status; }}"
