"""Inference on several ranks over MPI: any engine, any reductions, inputs partitioned, weights once a node.

`mpiexec -n R spdnn challenge ...` and `spdnn infer ...` come here. `world` knows the ranks, `shared` holds weights and
inputs once a node, `partition` says who has which inputs, `exchange` moves and merges rows between layers, and `run`
measures. Nothing of MPI is imported before a launcher has started several processes.
"""
