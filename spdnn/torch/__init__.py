"""Pruned PyTorch models that run as fast as they are sparse; imported on request, for it needs torch.

    import spdnn.torch as st

    st.sparsify(model, 0.9)                       # replaces the layers that gain, and prints what it did
    loss(model(x), y).backward()                  # trains as before: weights are parameters
    st.restore(new_model, torch.load("model.pt")) # the same layers sparse, and their weights
    st.fuse(model.eval())                         # for inference: batch normalisations go into convolutions

Under torch.compile, torch.export and functional_call the layers are operators (ops/torch/library.py); there is no vmap.
"""

from spdnn.ops.torch.models import Table, fuse, restore, sparsify
from spdnn.ops.torch.modules import SparseAttention, SparseConv2d, SparseLinear, attention

__all__ = ["SparseAttention", "SparseConv2d", "SparseLinear", "Table", "attention", "fuse", "restore", "sparsify"]
