# Other libraries and our kernels, timed alternately -> run records, a file each. Takes every core, as infer does.
if PEERS:

    rule peers:
        input:
            inputs=(
                [f"results/inputs/{PEERS['network']['inputs']}-{PEERS['network']['neurons']}.safetensors"]
                if PEERS.get("network")
                else []
            ),
            trigger=TRIGGERS.of("peers"),
        output:
            directory("results/peers"),
        log:
            "results/logs/peers/peers.log",
        threads: RULES.every_core(PEERS.get("threads", 1))
        resources:
            machine=100,
        params:
            peers=PEERS,
            configfiles=CONFIGFILES,
        script:
            "../scripts/peers.py"
