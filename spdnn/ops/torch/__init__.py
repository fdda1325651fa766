"""Sparse layers of PyTorch; `spdnn.torch` has the public names."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    from spdnn.core.errors import Unavailable, install

    raise Unavailable(f"torch is missing: {install('torch')}") from error
