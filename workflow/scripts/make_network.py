"""Rule make_network: the RadiX-Net of a width at full depth, stored as its formula; or an unstructured network."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.core.challenge import MAX_LAYERS
    from spdnn.formats.radixnet import RadixNet
    from spdnn.formats.store import write_network
    from spdnn.formats.unstructured import Unstructured

    neurons, depth = int(snakemake.wildcards.neurons), snakemake.params.depth
    made = RadixNet(neurons, MAX_LAYERS) if depth is None else Unstructured(neurons, depth)
    write_network(snakemake.output[0], made, formula_ok=True)
