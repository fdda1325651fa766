"""An inference as a graph of tasks: how it is cut, the graph, what must hold of it, and what runs it.

`decomposition` cuts (batches of inputs, stages of layers, buffers of weights, devices); `graph` makes tasks and their
dependencies of it; `check` says what is wrong with a graph; `execution` says which task may run now, to the executors
(spdnn/engines/taskgraph) and to the simulator; `simulation` predicts with the cost model of spdnn/model; `choice` finds
a decomposition. Nothing here knows of kernels.

Source: SNIG (Lin and Huang, HPEC 2020), whose task graph is cut by batches, layers and devices; GPipe (Huang et al.,
NeurIPS 2019); weights streamed into rolling buffers: Hidayetoglu et al., HPEC 2020, section III.
"""
