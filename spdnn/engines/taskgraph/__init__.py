"""An inference as a graph of tasks: how it is cut, the graph, and what runs it.

`decomposition` cuts (batches of inputs, stages of layers, buffers of weights, devices); `graph` makes tasks of it and
says what each waits for; `execution` says which may run now, to the executors (spdnn/engines/taskgraph) and to the
simulator; `simulation` predicts with the cost model; `choice` finds a decomposition. Nothing here knows of kernels.
That a graph is sound in every order is proved by tests/engines/taskgraph/graph_check.py.

Source: SNIG (Lin and Huang, HPEC 2020), whose task graph is cut by batches, layers and devices; GPipe (Huang et al.,
NeurIPS 2019); weights streamed into rolling buffers: Hidayetoglu et al., HPEC 2020, section III.
"""
