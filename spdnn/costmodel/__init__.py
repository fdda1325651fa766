"""The cost model, the only one of the project: from measured costs to the time of any number of ranks."""
