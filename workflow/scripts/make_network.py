"""Rule make_network: the RadiX-Net of a width at full depth, stored as its formula."""

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.challenge import MAX_LAYERS
    from spdnn.formats.store import write_network
    from spdnn.sources.radixnet import RadixNet

    write_network(snakemake.output[0], RadixNet(int(snakemake.wildcards.neurons), MAX_LAYERS), formula_ok=True)
