"""The models in torch, where it happens to be: those in the other arithmetics are the same functions."""

import importlib.util
import sys

import numpy as np
import pytest
import torch_models

from spdnn.core.errors import install
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference
from spdnn.ops.models.mobilenet import MobileNet, MobileNetConfig
from spdnn.ops.models.transformer import PRESETS, Transformer


def test_missing(monkeypatch):
    assert (torch_models.missing() is None) == (importlib.util.find_spec("torch") is not None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_models.missing() == f"torch is missing: {install('torch')}"


if importlib.util.find_spec("torch"):

    @pytest.mark.parametrize("count", [1, 37, 256])
    def test_decoder(count):
        config = PRESETS["small"]
        model, tokens = Transformer(config), np.random.default_rng(0).integers(0, config.vocabulary, count)
        found = torch_models.Decoder(config, model.weights, 2).prefill(tokens)
        assert difference(found, model.prefill(tokens, "causal")) < ARITHMETIC_TOLERANCE

    @pytest.mark.parametrize(("count", "height", "width"), [(1, 33, 24), (3, 32, 32)])
    def test_conv_net(count, height, width):
        model = MobileNet(MobileNetConfig(width=0.25, classes=5))
        images = 100 * np.random.default_rng(0).standard_normal((count, 3, height, width), np.float32)
        assert difference(torch_models.ConvNet(model, 2).images(images), model.images(images)) < ARITHMETIC_TOLERANCE
