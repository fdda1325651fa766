"""Models with convolutions from ONNX: as ONNX Runtime runs them; what is refused."""

import threading
import tracemalloc

import numpy as np
import pytest
from onnx_models import Maker, chain, close, convolutional, outputs
from refusals import refuses

import spdnn


@pytest.mark.parametrize("seed", range(60))
def test_images_as_onnx_runtime_takes_them(tmp_path, seed):
    made, x = convolutional(seed)
    path = made.save(tmp_path / "a.onnx")
    with spdnn.compile(path, threads=1 + seed % 3) as model:
        assert close(model(x), outputs(path, x), 2e-5)


@pytest.mark.parametrize("softmax", ["Softmax", "LogSoftmax", None])
def test_a_chain_with_what_no_network_has(tmp_path, softmax):
    for seed in range(8):
        made, x = chain(seed)
        if softmax:
            made.add(softmax, axis=-1)
        path = made.save(tmp_path / "a.onnx")
        assert close(spdnn.compile(path)(x), outputs(path, x))


def test_a_network_with_a_softmax_says_so(tmp_path):
    made = Maker(6)
    made.add("Gemm", made.draw(6, 3))
    made.add("Softmax", axis=-1)
    with spdnn.compile(made.save(tmp_path / "a.onnx"), threads=2) as program:
        assert repr(program) == "Program(network 6 -> 3 of 1 layer with 18 edges, Softmax, 2 threads)"
    assert repr(program) == "Program(network 6 -> 3 of 1 layer with 18 edges, Softmax, closed)"


def pruned(density=0.1):
    made = Maker(3, 12, 12)
    made.add("Conv", made.draw(8, 3, 3, 3), pads=[1, 1, 1, 1], name="stem")
    made.add("Relu")
    made.add("Conv", made.draw(16, 8, 1, 1, density=density), name="pointwise")
    made.add("GlobalAveragePool")
    made.add("Flatten")
    made.add("Gemm", made.draw(16, 4), name="head")
    return made


def test_pruned_weights_are_sparse_products(tmp_path):
    model = spdnn.compile(pruned().save(tmp_path / "a.onnx"))
    assert model.sparse == ["pointwise"]
    assert repr(model).startswith("Program(5 steps, 1 sparse, ")


def test_calls_of_any_size_from_several_threads(tmp_path):
    path = pruned().save(tmp_path / "a.onnx")
    x = np.random.default_rng(1).standard_normal((9, 3, 12, 12)).astype(np.float32)
    wanted, model, found = outputs(path, x), spdnn.compile(path, threads=2), {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: model(x[:n])})) for n in (1, 2, 3, 9)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == [1, 2, 3, 9]
    for n, one in found.items():
        assert close(one, wanted[:n])
    assert model(x[:0]).shape == (0, 4)
    assert close(model(np.asfortranarray(x.astype(np.float64))), wanted)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_a_pooling_takes_the_memory_of_its_features_alone(tmp_path, kind):
    made = Maker(1, 200, 200)
    made.add(kind, kernel_shape=[100, 90], strides=[1, 3], pads=[9, 8, 7, 6])
    path = made.save(tmp_path / "a.onnx")
    x = np.random.default_rng(1).standard_normal((1, 1, 200, 200)).astype(np.float32)
    model, wanted = spdnn.compile(path), outputs(path, x)
    tracemalloc.start()
    try:
        assert close(model(x), wanted)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
    for pads, said in (([1 << 20] * 4, "'wide' .*: kernel"), ([0] * 4, "'wide' .pool. cannot take features")):
        made = Maker(1, 9, 9)
        made.add(kind, kernel_shape=[1 << 21, 1 << 21], pads=pads, name="wide")
        path = made.save(tmp_path / "b.onnx")
        refuses(said, lambda path=path: spdnn.compile(path)(x[:, :, :9, :9]))


def test_what_is_refused(tmp_path):
    path = pruned().save(tmp_path / "a.onnx")
    model, x = spdnn.compile(path), np.ones((2, 3, 12, 12), np.float32)
    refuses(r"'stem' .convolution. cannot take features of shape \(4, 2, 12, 12\)", model, np.ones((2, 4, 12, 12)))
    refuses(r"x is of .* shape \(3,\); it must be real numbers", model, np.ones(3))
    refuses("a value that is not finite", model, np.full_like(x, np.nan))
    refuses("runs on the engine cpu", spdnn.compile, path, engine="spgemm")
    refuses("not all of it is layers of a network: 'stem'", spdnn.open_network, path)
    with pytest.raises(spdnn.SpdnnError, match="passed the range of float32"):
        model(np.full_like(x, 3e38))
    model.close()
    refuses("this model is closed", model, x)
    made = pruned()
    made.constants[1].raw_data = np.full((16, 8, 1, 1), np.nan, np.float32).tobytes()
    refuses("'pointwise': a weight is NaN", spdnn.compile, made.save(tmp_path / "b.onnx"))
