# Sparse operations for deep learning beside other libraries -> operation records, one a line. Takes every core, as infer does.
if OPS:

    rule ops:
        input:
            archive=[DLMC] if DLMC else [],
            trigger=TRIGGERS.of("ops"),
        output:
            "results/ops/operations.jsonl",
        log:
            "results/logs/ops/ops.log",
        threads: RULES.every_core(OPS.get("threads", 1))
        resources:
            machine=100,
        params:
            ops=OPS,
            configfiles=CONFIGFILES,
        script:
            "../scripts/ops.py"
