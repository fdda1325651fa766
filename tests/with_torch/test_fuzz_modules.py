"""`make fuzz` judges compiled modules: some seeds pass; a wrong model, and a compile that changes something, fail."""

import random
import re

import fuzz_modules
import pytest
import torch
from fuzz_modules import examine
from torch import nn

import spdnn
from spdnn.core.errors import InputError

SEEDS = range(6)


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """No compiled model times its products."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


@pytest.mark.filterwarnings("ignore")  # of torch, about ways to hold tensors that are drawn on purpose
@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_modules_compile_or_are_refused(seed):
    outcome = examine(seed)
    assert outcome.failures == []
    assert outcome.result in ("compiled", "refused")
    assert (outcome.comparisons > 0) == (outcome.result == "compiled")


class Signature:
    names = ("x",)


class Stand:
    """A stand-in for a compiled model: it calls a function for tensors of one input."""

    signature = Signature()

    def __init__(self, call):
        self.call = call

    def __call__(self, *given, **named):
        (x,) = given or named.values()
        x = x["x"] if isinstance(x, dict) else x
        with torch.no_grad():
            y = self.call(torch.as_tensor(x))
        return y if isinstance(x, torch.Tensor) else y.numpy()


@pytest.fixture
def drawn(monkeypatch):
    """Each seed draws the same chain of two layers; another value of `expected` may be put into the dictionary."""
    changes = {}

    def draw(seed):
        torch.manual_seed(seed)
        module, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(5, 3)
        usual = {
            "given": module, "module": module, "example": x, "tensors": [x], "kinds": ["features 3"], "names": None,
            "dtype": torch.float32, "held": [], "expected": fuzz_modules.TAKEN, "counts": [],
        }  # fmt: skip
        return fuzz_modules.Drawn(**usual | changes)

    monkeypatch.setattr(fuzz_modules.drawn_modules, "draw", draw)
    return changes


def copied(module):
    """A function that computes what the module does, with numbers of its own."""
    weight, bias = (parameter.detach().clone() for parameter in module.parameters())
    return lambda x: (x @ weight.T + bias).tanh()


def test_a_right_model_passes(drawn):
    outcome = examine(0, lambda module, **_: Stand(copied(module)))
    assert (outcome.failures, outcome.result) == ([], "compiled")
    assert outcome.comparisons == 4 * 4  # numbers of inputs, and ways to call


def holds_tensors(module, **_):
    weight, bias = module.parameters()
    return Stand(lambda x: (x @ weight.T + bias).tanh())


def holds_the_example(module, example, **_):
    right, first = copied(module), example.clone()
    return Stand(lambda x: right(x) + (example - first).sum())


def wrong_alone(module, **_):
    right = copied(module)
    return Stand(lambda x: right(x) if len(x) > 1 else -right(x))


def wrong_with_many(module, **_):
    right = copied(module)
    return Stand(lambda x: right(x)[:2])


def slightly_wrong(module, **_):
    right = copied(module)
    return Stand(lambda x: right(x) * 1.001)


def writes(module, **_):
    right = copied(module)
    return Stand(lambda x: right(x.clone() if x.zero_() is None else x))


def raises(module, **_):
    return Stand(lambda x: x.no_such_attribute)


def changes_a_weight(module, **_):
    with torch.no_grad():
        next(module.parameters())[0, 0] += 1
    return Stand(copied(module))


def changes_the_mode(module, **_):
    module.eval()
    return Stand(copied(module))


def adds_a_hook(module, **_):
    module[0].register_forward_hook(print)
    return Stand(copied(module))


def draws(module, **_):
    random.random()
    return Stand(copied(module))


def crashes(module, **_):
    raise KeyError("weight")


def refuses(module, **_):
    raise InputError("a module of two layers is not taken")


@pytest.mark.parametrize(
    ("compile", "why"),
    [
        (holds_tensors, "output 0 differs"), (holds_the_example, "output 0 differs"),
        (wrong_alone, "at 1 inputs, .*: output 0 differs"),
        (wrong_with_many, "at 5 inputs, .*: output 0 is float32 of shape"),
        (slightly_wrong, "output 0 differs"), (writes, "a call writes into its inputs"), (raises, "no_such_attribute"),
        (changes_a_weight, "^compile changed .*tensor 1"), (changes_the_mode, "^compile changed given"),
        (adds_a_hook, "^compile changed given.0"), (draws, "^compile changed the random state of Python"),
        (crashes, "KeyError"), (refuses, "^it should be taken, and is refused"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_noticed(drawn, compile, why):
    failures = examine(0, compile).failures
    assert failures
    assert any(re.search(why, each) for each in failures), failures


@pytest.mark.parametrize("sentence", ["no", "two\nlines are no sentence", "x" * 401])
def test_a_refusal_is_a_sentence(drawn, sentence):
    def compile(module, **_):
        raise InputError(sentence)

    drawn["expected"] = fuzz_modules.REFUSED
    (failure,) = examine(0, compile).failures
    assert failure.startswith("this is no sentence")


def test_what_should_be_refused_must_be(drawn):
    drawn["expected"] = fuzz_modules.REFUSED
    assert examine(0, lambda module, **_: Stand(copied(module))).failures == ["it should be refused, and is taken"]
    assert examine(0, refuses).failures == []


def test_a_compile_of_the_package_is_judged(drawn):
    assert examine(0, spdnn.compile).failures == []
