# Sparse operations for deep learning beside other libraries -> operation records, one a line. Takes every core, as infer does.
if OPS:

    rule ops:
        input:
            [DLMC] if DLMC else [],
        output:
            "results/ops/operations.jsonl",
        log:
            "results/logs/ops/ops.log",
        threads: RULES.every_core(OPS.get("threads", 1))
        params:
            ops=OPS,
            content=lambda wildcards: content([OPS.get("dlmc")]),
            configfiles=CONFIGFILES,
            code=code("bench"),
        script:
            "../scripts/ops.py"
