"""The cost model, the only one of the project: from measured costs to the time of any number of ranks.

`costs` has what a layer, a message and a copy cost; `calibration` takes these from a record; `prediction` predicts.
"""
