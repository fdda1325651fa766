# source -> network + inputs, which are removed when nothing needs them any more (--notemp keeps them). Formula networks
# are stored as formulas; everything downloaded is checked by its digest.


# Runs where Snakemake does, also when jobs go to a cluster: its nodes may have no way out.
rule fetch_file:
    output:
        "results/data/{file}",
    log:
        "results/logs/fetch_file/{file}.log",
    wildcard_constraints:
        file="(mnist|dnn|dlmc)/[^/]+",
    retries: 1
    localrule: True
    resources:
        machine=1,
    params:
        content=lambda wildcards: content_of_download(wildcards.file),
    script:
        "../scripts/fetch_file.py"


rule make_network:
    input:
        trigger=TRIGGERS.of("networks"),
    output:
        temp("results/networks/{source}-{neurons}.safetensors"),
    log:
        "results/logs/make_network/{source}-{neurons}.log",
    benchmark:
        "results/times/networks/{source}-{neurons}.tsv"
    resources:
        machine=1,
    params:
        depth=lambda wildcards: TARGETS.depth_to_store(f"{wildcards.source}-{wildcards.neurons}"),
    script:
        "../scripts/make_network.py"


rule import_network:
    input:
        TARGETS.network_source,
        trigger=TRIGGERS.of("networks"),
    output:
        temp("results/networks/{network}.safetensors"),
    log:
        "results/logs/import_network/{network}.log",
    benchmark:
        "results/times/networks/{network}.tsv"
    resources:
        machine=1,
    params:
        reading=TARGETS.reading,
    script:
        "../scripts/import_network.py"


rule make_inputs:
    input:
        lambda wildcards: [MNIST] if wildcards.kind == "mnist" else [],
        trigger=TRIGGERS.of("inputs"),
    output:
        temp("results/inputs/{kind}-{neurons}.safetensors"),
    log:
        "results/logs/make_inputs/{kind}-{neurons}.log",
    benchmark:
        "results/times/inputs/{kind}-{neurons}.tsv"
    wildcard_constraints:
        kind="digits|mnist",
    threads: 2
    resources:
        machine=1,
    script:
        "../scripts/make_inputs.py"


rule import_inputs:
    input:
        TARGETS.inputs_source,
        trigger=TRIGGERS.of("inputs"),
    output:
        temp("results/inputs/{inputs}.safetensors"),
    log:
        "results/logs/import_inputs/{inputs}.log",
    benchmark:
        "results/times/inputs/{inputs}.tsv"
    resources:
        machine=1,
    script:
        "../scripts/import_inputs.py"


ruleorder: make_network > import_network
ruleorder: make_inputs > import_inputs
