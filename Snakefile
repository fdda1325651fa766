# spdnn: sparse deep neural network inference at scale. One stage a file, in the order that data travels (DESIGN.md).
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")
try:
    import spdnn.pipeline.config
except ImportError as error:
    raise WorkflowError(f"spdnn cannot be imported ({error}); run `make setup` and `. .venv/bin/activate`")


include: "workflow/rules/common.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/infer.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/peers.smk"
include: "workflow/rules/ops.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        "results/report.html",
        "results/figures",
    localrule: True
