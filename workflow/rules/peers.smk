# Other libraries and our kernels, timed alternately -> run records, a file each. Takes every core, as infer does.
if PEERS:

    rule peers:
        input:
            [f"results/inputs/{PEERS['network']['inputs']}-{PEERS['network']['neurons']}.safetensors"]
            if PEERS.get("network")
            else [],
        output:
            directory("results/peers"),
        log:
            "results/logs/peers/peers.log",
        threads: RULES.every_core(PEERS.get("threads", 1))
        params:
            peers=PEERS,
            configfiles=CONFIGFILES,
            code=code("bench"),
        script:
            "../scripts/peers.py"
