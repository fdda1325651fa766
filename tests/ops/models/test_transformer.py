"""The Transformer in every arithmetic, against the whole model in float64."""

import model_oracle
import numpy as np
import pytest
from refusals import refuses

from spdnn.core.errors import InputError
from spdnn.ops.models import dense_attention, transformer
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference
from spdnn.ops.models.transformer import PRESETS, Transformer, TransformerConfig, random_weights, tensor_shapes

SMALL = {"layers": 2, "heads": 4, "width": 32, "between": 48, "vocabulary": 11, "band": 8, "sparsity": 0.8}
CASES = {
    "small": {"sequence": 50},
    "one token": {"sequence": 1},
    "one head": {"sequence": 33, "heads": 1},
    "band beyond the sequence": {"sequence": 20, "band": 100},
    "no far position": {"sequence": 40, "sparsity": 0.999},
    "diagonal alone": {"sequence": 21, "band": 1, "sparsity": 0.999},
    "one layer, head of one feature": {"sequence": 17, "layers": 1, "heads": 6, "width": 6},
    "odd widths": {"sequence": 29, "heads": 3, "width": 39, "between": 41, "vocabulary": 3},
}


def config_of(case):
    return TransformerConfig(**{**SMALL, **case})


def tokens_of(config):
    return np.random.default_rng(1).integers(0, config.vocabulary, config.sequence)


@pytest.fixture
def small():
    """A model and its tokens."""
    model = Transformer(config_of(CASES["small"]))
    return model, tokens_of(model.config)


def assert_every_arithmetic(model, tokens, threads=1):
    count = len(tokens)
    masks = {"causal": np.tri(count, dtype=bool), "sparse": model_oracle.dense(model.mask)[:count, :count]}
    wanted = {name: model_oracle.transformer(model.weights, masks[name], model.config.heads, tokens) for name in masks}
    for arithmetic in transformer.ARITHMETICS:
        found = model.prefill(tokens, arithmetic, threads=threads)
        assert found.shape == (count, model.config.vocabulary)
        assert found.dtype == np.float32
        assert difference(found, wanted.get(arithmetic, wanted["sparse"])) < ARITHMETIC_TOLERANCE, arithmetic


@pytest.fixture
def small_blocks(set_all):
    """Blocks that the small sequences have several of, the last one shorter."""
    set_all(transformer, TOKENS=12)
    set_all(dense_attention, QUERIES=9, KEYS=7)


@pytest.mark.parametrize("case", CASES)
def test_against_float64(case, small_blocks):
    model = Transformer(config_of(CASES[case]), 3)
    assert_every_arithmetic(model, tokens_of(model.config), threads=2)


@pytest.mark.parametrize("count", [1, 7, 30, 49])
def test_shorter_sequences(count, small, small_blocks):
    model, tokens = small
    assert_every_arithmetic(model, tokens[:count])


def test_later_tokens_change_nothing(small):
    model, tokens = small
    for arithmetic in transformer.ARITHMETICS:
        whole, part = model.prefill(tokens, arithmetic), model.prefill(tokens[:20], arithmetic)
        assert difference(part, whole[:20]) < ARITHMETIC_TOLERANCE


def test_the_mask_matters(small):
    """Sparse and causal are two models: were the mask not used, the comparison with float64 would not show it."""
    model, tokens = small
    assert difference(model.prefill(tokens, "sparse"), model.prefill(tokens, "causal")) > 0.05


def test_preset_of_default_blocks():
    model = Transformer(PRESETS["small"], 1)
    assert_every_arithmetic(model, tokens_of(model.config))
    assert set(model.seconds) == {"norms", "projections", "attention", "between", "logits"}


def test_threads_change_no_bit(small, small_blocks):
    model, tokens = small
    for arithmetic in transformer.ARITHMETICS:
        one = model.prefill(tokens, arithmetic, threads=1)
        assert np.array_equal(one, model.prefill(tokens, arithmetic, threads=3))


def test_activations_stay_sane():
    """Random weights: features keep their size through many layers, so that nothing under- or overflows."""
    model = Transformer(config_of({"sequence": 64, "layers": 24, "width": 64}))
    logits = model.prefill(tokens_of(model.config), "dense")
    assert 0.3 < logits.std() < 3


def test_costs():
    model = Transformer(config_of({"sequence": 40}))
    c, nnz = model.config, model.mask.nnz
    dense_part = c.layers * (4 * c.width**2 + 2 * c.width * c.between) + c.width * c.vocabulary
    assert model.flops("sparse") == 2 * (40 * dense_part + c.layers * 2 * nnz * c.width)
    assert model.flops("dense") == 2 * (40 * dense_part + c.layers * 40 * 41 * c.width)
    assert model.flops("sparse", tokens=1) == 2 * (dense_part + c.layers * 2 * c.width)
    assert model.weight_bytes("sparse") == model.weight_bytes("dense")
    assert model.weight_bytes() == 4 * sum(int(np.prod(shape)) for shape in tensor_shapes(c).values())
    assert model.attention_bytes("sparse") == model.mask.nbytes + 4 * 40
    assert model.attention_bytes("unfused") == model.attention_bytes("sparse") + 4 * c.heads * nnz
    assert model.attention_bytes("stored") == model.mask.nbytes + 8 * c.heads * 40 * 40
    assert model.attention_bytes("causal", 2) == 2 * model.attention_bytes("causal", 1)
    assert model.attention_bytes("dense", threads=2) - model.mask.nbytes > model.attention_bytes("dense", threads=1) / 2


def test_the_papers_sizes():
    """Of its code: 12,288 positions, and masks of sparsity 0.9554."""
    config = PRESETS["paper"]
    far = config.sequence - config.band
    kept = round(far * (far + 1) / 2 * (1 - config.sparsity)) + sum(
        min(row + 1, config.band) for row in range(config.sequence)
    )
    assert 1 - kept / config.sequence**2 == pytest.approx(0.955411659, abs=1e-9)
    assert (config.layers, config.heads, config.width, config.between, config.depth) == (3, 8, 1024, 4096, 128)


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_save_and_read(tmp_path, ending):
    config = config_of(CASES["one head"])
    model, tokens = Transformer(config, 5), tokens_of(config)
    model.save(path := tmp_path / f"weights{ending}")
    assert np.array_equal(Transformer(config, str(path)).prefill(tokens), model.prefill(tokens))
    assert not np.array_equal(Transformer(config, 6).prefill(tokens), model.prefill(tokens))


@pytest.mark.parametrize(
    ("name", "said"),
    [("norm.weight", "a logit is NaN or infinite"), ("layers.1.query.weight", "attention is NaN somewhere")],
)
def test_what_passes_float32_is_told(name, said):
    config = config_of(CASES["small"])
    weights = random_weights(config)
    weights[name] = np.full_like(weights[name], 3e38)
    with pytest.raises(InputError, match=said), np.errstate(all="ignore"):
        Transformer(config, weights).prefill(tokens_of(config), "sparse")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sequence": 0}, "sequence 0: it must be a whole number from 1 to 65,536"),
        ({"layers": True}, "layers True"),
        ({"heads": 3}, "width 32: it must be a multiple of the 3 heads"),
        ({"width": 2.5}, "width 2.5"),
        ({"between": 1 << 19}, "between 524288"),
        ({"vocabulary": -1}, "vocabulary -1"),
        ({"band": 0}, "band 0"),
        ({"sparsity": 1}, "sparsity 1: it must be a number from 0 to below 1"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_configurations_refused(change, said):
    refuses(said, config_of, {"sequence": 8, **change})


@pytest.mark.parametrize(
    ("tokens", "arithmetic", "threads", "said"),
    [
        ([0] * 51, "sparse", 1, "tokens are int64 of shape .51,.; they must be 1 to 50 whole numbers"),
        ([], "sparse", 1, "they must be 1 to 50"),
        ([[0]], "sparse", 1, "they must be 1 to 50"),
        ([0.0], "sparse", 1, "tokens are float64"),
        ([0, 11], "sparse", 1, "token 11: it must be 0 to 10"),
        ([-1, 3], "dense", 1, "token -1: it must be 0 to 10"),
        ([0], "exact", 1, "arithmetic 'exact': it must be one of sparse, unfused, dense, stored, causal"),
        ([0], "sparse", 0, "threads 0: an integer from 1 to 1024"),
    ],
)
def test_calls_refused(small, tokens, arithmetic, threads, said):
    refuses(said, small[0].prefill, tokens, arithmetic, threads)
