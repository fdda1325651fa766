# The workflow is in workflow/Snakefile: this file is for those who look for one here.
include: "workflow/Snakefile"


# The default target of an included file is not taken over.
workflow.default_target = "all"
