"""Which products of an ONNX model are ours: timed (onnx_timing.py) or kept (tuning.py), and verified.

Both programs compute on ONNX Runtime's threads, in one session. What ours gave is compared with what ONNX Runtime gave,
product by product; a product that differs is left to ONNX Runtime.
"""

import hashlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from spdnn.core import closeness
from spdnn.core.errors import InputError
from spdnn.core.provenance import cpu_name
from spdnn.core.validation import builtins, convert
from spdnn.formats import onnx_files
from spdnn.formats.onnx_files import OnnxGraph, names_in, subgraphs
from spdnn.ops import onnx_timing, tuning
from spdnn.ops.cpu import _load
from spdnn.ops.onnx_products import DOMAIN, GraphProduct, jumps, products
from spdnn.ops.onnx_timing import ONNX_RUNTIME, OURS, TILES, Choice, Models

UNKNOWN = 64  # the size of a dimension that neither the model nor an example states
SURE = 0.2  # of the weights: a product with no more nonzeros is ours where it cannot be timed
STAYS = "it stays in ONNX Runtime, since its outputs differ with our kernels; please report it"
FORMS = 4  # times by which two forms of a model in ONNX Runtime differ
WHOLE = 1e-3  # of the largest output: rounding that a whole model may have made larger
# Of two programs together: at most a third of that was measured (tests/ops/test_onnx_rounding.py); the part of all
# absolute values that sums of sorted terms take.
ROUNDINGS, SORTED = 16 * 2.0**-24, 1 / 32
TINY = float(np.finfo(np.float32).tiny)


class Trial:
    """The products of a model, and what was found of each.

    Attributes:
        products: of pruned weights; jumps: whether an operator may make a large difference of a small one.
        plain: a session of the model as it is.
        reasons: of each product, by its place, how it runs and why; of the model: None.
        tiles: of the products, once they are chosen; 0: ONNX Runtime runs it.
        before: how a choice that was timed again differs from the one that was kept; empty: there was none.
    """

    def __init__(self, graph: OnnxGraph, threads: int):
        self.graph, self.threads = graph, threads
        self.kernels, self.level = _load(None)
        # First as it is: a model that ONNX Runtime does not take is refused here.
        self.plain: Any = graph.session(self._options)
        self.products, self.jumps = list(products(graph.model.graph)), jumps(graph.model.graph)
        self.reasons: dict[Any, str] = {}
        self.before, self.tiles = "", [0] * len(self.products)

    def choose(self, example: Any, batch: int | None, verify: bool, again: bool) -> tuple[Any, list[GraphProduct]]:
        """(the session to take, the products in it that are ours); arguments as of OnnxModel."""
        session, tiles = self.plain, [0] * len(self.products)
        if self.products:
            sample, reach = self._sample(example, batch)
            try:
                tiles = self._choose(sample, again)
                tiles = self._verified(sample, reach, tiles) if verify else tiles
                session = self._with(tiles) if any(tiles) else session
            except Exception as error:  # ONNX Runtime does not take what it simplified, or what ours made of it
                self.reasons, tiles = {None: onnx_files.reason(error)}, [0] * len(self.products)
        for product, tile in zip(self.products, tiles, strict=True):
            self.reasons.setdefault(product.place, f"{OURS}, tiles of {tile}" if tile else ONNX_RUNTIME)
        self.tiles = [*tiles]
        return session, [product for product, tile in zip(self.products, tiles, strict=True) if tile]

    def models(self, sample: Mapping[str, Any]) -> Models:
        """The models whose timing decides, for these inputs."""
        usual = [product.nonzero <= SURE for product in self.products]
        return Models(self._with, self.products, usual, sample, self.graph.model.ByteSize())

    def _options(self, options: Any) -> None:
        options.intra_op_num_threads = self.threads
        options.register_custom_ops_library(self.kernels.__file__)

    def _open(self, model: Any) -> Any:
        return onnx_files.session(model, self._options, self.graph.name)

    def _sample(self, example: Any, batch: int | None) -> tuple[dict | None, dict]:
        """(what products are timed on: the example, or drawn inputs; what of it reaches and leaves them).

        None and nothing where drawn inputs do not suit the model; `explain` says so then.
        """
        if example is not None:
            several = example if isinstance(example, tuple | list) else [example]
            sample = self.graph.signature.feed(*self.graph.signature.arguments(tuple(several), {}))
        else:
            sample = self.graph.signature.draw(batch or 1, UNKNOWN)
        if sample is None:
            why = "its inputs cannot be drawn"
        else:
            try:
                return sample, self._features(sample)
            except Exception as error:  # of many types: sizes of our own choice do not fit
                why = onnx_files.reason(error)
                if example is not None:
                    raise InputError(f"{self.graph.name}: example: {why}") from error
        self.reasons[None] = f"nothing was timed ({why}); with an example that the model takes, it is"
        return None, {}

    def _choose(self, sample: dict | None, again: bool) -> Sequence[int]:
        """The tile of each product, kept or timed; 0 where ONNX Runtime runs it."""
        choice = None if sample is None else self._kept_or_timed(sample, again)
        if choice is None:  # sparsity alone decides where nothing can be timed
            return [TILES[0] if product.nonzero <= SURE else 0 for product in self.products]
        self.reasons |= {each.place: choice.of_product(k) for k, each in enumerate(self.products)}
        self.reasons[None] = choice.of_model
        return choice.tiles

    def _kept_or_timed(self, sample: dict, again: bool) -> Choice | None:
        """The choice for this sample; None: tuning is off."""
        # Choices are kept between processes, by what they depend on.
        shapes = [f"{name} {array.dtype}{array.shape}" for name, array in sample.items()]
        graph = [f"{each.name} {each.matrix.shape} {each.window} {each.nonzero:.2f}" for each in self.products]
        graph += [node.op_type for node in self.graph.model.graph.node]
        # A choice holds for this processor, these kernels, this version of ONNX Runtime and this model and sample.
        version, code = onnx_files.runtime().__version__, self.kernels.source_digest[:16]
        digest = hashlib.sha256(repr((shapes, graph)).encode()).hexdigest()[:32]
        key = f"{cpu_name()} {self.level} t{self.threads} {code} onnxruntime {version} model {digest}"

        def fits(kept: Any) -> bool:
            try:
                choice = convert(Choice, kept, key)
            except InputError:
                return False
            return len(choice.tiles) == len(choice.costs) == len(self.products) and {*choice.tiles} <= {*TILES, 0}

        kept = tuning.kept(key, fits) if again else None
        found = tuning.keep(
            *(key, lambda: builtins(onnx_timing.choose(self.models(sample))), fits),
            *(lambda made: not made["provisional"], again),
        )
        if found is None:
            return None
        choice = convert(Choice, found, key)
        if kept is not None:
            self.before = choice.beside(convert(Choice, kept, key))
        return choice

    def _verified(self, sample: dict | None, reach: dict, tiles: Sequence[int]) -> list[int]:
        """The tiles, 0 for a product of ours that differs from ONNX Runtime's by more than rounding, with a warning.

        Each product decides, on what reaches it, or on numbers that are drawn for it. The whole model is compared where
        none of its operators makes a large difference of a small one.
        """
        right = []
        for product, tile in zip(self.products, tiles, strict=True):
            apart = self._apart(product, tile, reach) if tile else 0.0
            if not apart <= 1:
                self.reasons[product.place] = f"{ONNX_RUNTIME}: ours gave other numbers"
                warnings.warn(
                    f"{self.graph.name}: {product.name} stays in ONNX Runtime, since our kernel differs by {apart:.3g} "
                    "times what rounding explains; please report it",
                    RuntimeWarning, stacklevel=7,
                )  # fmt: skip
            right.append(tile if apart <= 1 else 0)
        if sample is None or not any(right):
            return right
        found = self._with(right).run(None, sample)  # where it does not run, all stays in ONNX Runtime
        if self.jumps:
            return right
        if all_alike(found, self.plain.run(None, sample), self.graph, sample):
            return right
        self.reasons = {None: f"{ONNX_RUNTIME}: the whole model gave other numbers with ours"}
        warnings.warn(f"{self.graph.name}: {STAYS}", RuntimeWarning, stacklevel=7)
        return [0] * len(right)

    def _apart(self, product: GraphProduct, tile: int, reach: dict) -> float:
        """The largest difference of our product from ONNX Runtime's, in parts of what rounding explains."""
        x = reach.get(product.reads) if product.outside else None
        wanted = reach.get(product.gives) if not product.path else None
        if x is None:
            x = np.random.default_rng(0).standard_normal(_features_of(product)).astype(np.float32)
        if wanted is None:
            wanted = self._open(alone(self.graph.model, product, x, None)).run(None, {product.reads: x})[0]
        found = self._once(product, tile, x).run(None, {product.reads: x})[0]
        return closeness.worst(found, wanted, _rounding(product, x, wanted), nan=True, empty=True)

    def _once(self, product: GraphProduct, tile: int, x: np.ndarray) -> Any:
        """A session of one product, for features like x; tile 0: in ONNX Runtime."""
        key = self._key(product, tile) if tile else None
        try:
            return self._open(alone(self.graph.model, product, x, key))
        finally:
            if key is not None:
                self.kernels.drop_product(key)

    def _features(self, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What reaches and leaves the products of a sample, as far as the model's own graph has it."""
        from onnx import helper

        # Values inside the graph become outputs of a copy of the model.
        values = {name for node in self.graph.model.graph.node for name in node.output if name}
        ends = {product.gives for product in self.products if not product.path}
        wanted = sorted(({product.reads for product in self.products if product.outside} | ends) & values)
        copy = type(self.graph.model)()
        copy.CopyFrom(self.graph.model)
        there = {output.name for output in copy.graph.output}
        copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in there)
        return sample | dict(zip(wanted, self._open(copy).run(wanted or None, sample), strict=False))

    def _with(self, tiles: Sequence[int], profile: str | None = None) -> Any:
        """A session with our products, those that have a tile; `profile`: as of Models."""
        if not any(tiles) and profile is None:
            return self.plain

        def change(options: Any) -> None:
            self._options(options)
            if profile is not None:
                options.enable_profiling, options.profile_file_prefix = True, profile

        keys = {
            product.place: self._key(product, tile) for product, tile in zip(self.products, tiles, strict=True) if tile
        }
        try:
            model = replace_products(self.graph.model, keys, self.products)
            return onnx_files.session(model, change, self.graph.name)
        # The session holds its kernels now; the keys were only to hand them over.
        finally:
            for key in keys.values():
                self.kernels.drop_product(key)

    def _key(self, product: GraphProduct, tile: int) -> int:
        matrix = product.matrix
        return self.kernels.make_product(
            self.level, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, product.bias,
            product.low, product.high, matrix.shape[1], product.window, product.nodes[0].op_type == "Gemm", tile,
            self.threads,
        )  # fmt: skip


def all_alike(found: Sequence[Any], wanted: Sequence[Any], graph: OnnxGraph, sample: Mapping[str, Any]) -> bool:
    """Whether the outputs of a whole model are those that ONNX Runtime gives for a sample, but for rounding.

    Its own forms of a model, with all optimisations and with none, differ too: by as much as the output where that is a
    sigmoid near zero. Some times their difference is allowed.
    """
    pairs = [pair for pair in zip(found, wanted, strict=True) if isinstance(pair[1], np.ndarray)]
    if all(alike(*pair) for pair in pairs):
        return True
    others = graph.session(onnx_files.without_optimisations).run(None, sample)
    apart = [
        FORMS * closeness.largest(other - each) if each.dtype.kind == "f" else 0.0
        for other, each in zip(others, wanted, strict=True)
        if isinstance(each, np.ndarray)
    ]
    return all(alike(*pair, allowed) for pair, allowed in zip(pairs, apart, strict=True))


def alike(found: np.ndarray, wanted: np.ndarray, allowed: float = 0.0) -> bool:
    """Whether outputs of a whole model are the same but for rounding, and for what is allowed besides; whole numbers
    are not looked at."""
    if wanted.dtype.kind != "f":
        return True
    return closeness.worst(found, wanted, max(allowed, rounding_of(wanted)), nan=True, empty=True) <= 1


def rounding_of(wanted: np.ndarray) -> float:
    """By how much an output of a whole model may differ by rounding."""
    return WHOLE * closeness.largest(wanted) + TINY


def _rounding(product: GraphProduct, x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How far two programs may be apart: float64, of the shape of what they give, or fit to broadcast.

    A sum of n terms is off by about sqrt(n) roundings of its partial sums. These grow as the root of the squares of the
    terms does, or towards the sum; of terms that are sorted by their signs, to half of all absolute values. Source:
    Higham and Mary, SISC 41(5), 2019, as in spdnn.engines.oracle.
    """
    weights, terms = abs(product.matrix).astype(np.float64), np.diff(product.matrix.indptr) + 2.0
    rows = np.abs(x.reshape(-1, x.shape[-1]).astype(np.float64)).T
    if product.window is not None:  # a window of x holds no value that is larger than the largest
        rows = np.full((weights.shape[1], 1), closeness.largest(x))
    sizes = np.sqrt(weights.multiply(weights).tocsr() @ np.square(rows)) + SORTED * (weights @ rows)
    allowed = ROUNDINGS * np.sqrt(terms)[:, None] * (sizes + np.abs(product.bias)[:, None])
    shape = (*x.shape[:-1], -1) if product.window is None else (-1, 1, 1)
    return allowed.T.reshape(shape) + ROUNDINGS * np.sqrt(terms.max(initial=0)) * np.abs(wanted) + TINY


def _features_of(product: GraphProduct) -> tuple[int, ...]:
    """A shape of features that a product takes."""
    if product.window is None:
        return 2, product.matrix.shape[1]
    channels, height, width, *_, down, across, _ = product.window
    return 1, channels, max(8, (height - 1) * down + 1), max(8, (width - 1) * across + 1)


def replace_products(model, keys: Mapping[tuple, int], candidates: Collection[GraphProduct]):
    """A copy of a model with nodes `GraphProduct` in place of some products.

    Args:
        keys: of the kernels, by the product's place; candidates: all products of the model.
    """
    from onnx import helper

    # All values between the nodes of a product go with them.
    ours = {product.place: product for product in candidates if product.place in keys}
    gone = {(product.path, value) for product in ours.values() for node in product.nodes for value in node.output}
    copy = type(model)()
    copy.CopyFrom(model)
    copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))

    def change(graph, path: tuple[int, ...]) -> None:
        nodes = []
        for number, node in enumerate(graph.node):
            for branch, inside in enumerate(subgraphs(node)):
                change(inside, (*path, number, branch))
            place = path, node.output[0] if node.output else ""
            if place in ours:
                product = ours[place]
                attributes = {"domain": DOMAIN, "key": keys[place]}
                nodes.append(helper.make_node("Product", [product.reads], [product.gives], product.name, **attributes))
            elif place not in gone:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
        # ONNX Runtime drops what nobody reads, but would first copy it
        used = {*names_in(graph), *(value.name for value in graph.input)}
        weights = [tensor for tensor in graph.initializer if tensor.name in used]
        if len(weights) < len(graph.initializer):
            del graph.initializer[:]
            graph.initializer.extend(weights)

    change(copy.graph, ())
    return copy


def alone(model, product: GraphProduct, x: np.ndarray, key: int | None):
    """A model of one product, as it is, or as ours where it has a key, for features like x."""
    from onnx import TensorProto, helper

    nodes = [*product.nodes]
    if key is not None:
        nodes = [helper.make_node("Product", [product.reads], [product.gives], domain=DOMAIN, key=key)]
    inputs = [helper.make_tensor_value_info(product.reads, TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_empty_tensor_value_info(product.gives)]
    weights = product.constants if key is None else ()
    small = helper.make_model(helper.make_graph(nodes, "product", inputs, outputs, weights))
    del small.opset_import[:]
    small.opset_import.extend([*model.opset_import, helper.make_opsetid(DOMAIN, 1)])
    small.ir_version = model.ir_version
    return small
