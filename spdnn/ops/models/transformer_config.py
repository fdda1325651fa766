"""The sizes of a Transformer decoder, checked."""

from dataclasses import dataclass, fields

from spdnn.core.errors import InputError
from spdnn.ops.models.arithmetic import share, whole
from spdnn.ops.models.masks import MOST_SEQUENCE


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a model; those of the paper by default.

    Attributes:
        sequence: most tokens; layers, heads; width: of a token's features, a multiple of heads; between: of the two
            layers after attention; vocabulary.
        band, sparsity, seed: of the mask (masks.band_and_decay).

    Raises:
        InputError: one of them out of range.
    """

    sequence: int = 12288
    layers: int = 3
    heads: int = 8
    width: int = 1024
    between: int = 4096
    vocabulary: int = 256
    band: int = 256
    sparsity: float = 0.95
    seed: int = 0

    def __post_init__(self):
        limits = {"sequence": MOST_SEQUENCE, "layers": 256, "heads": 256, "band": MOST_SEQUENCE}
        for field in fields(self):
            if field.name not in ("sparsity", "seed"):
                whole(field.name, getattr(self, field.name), 1, limits.get(field.name, 1 << 18))
        whole("seed", self.seed, 0, (1 << 63) - 1)
        share("sparsity", self.sparsity, 0, 1)
        if self.width % self.heads:
            raise InputError(f"width {self.width}: it must be a multiple of the {self.heads} heads")

    @property
    def depth(self) -> int:
        """Features of a head."""
        return self.width // self.heads
