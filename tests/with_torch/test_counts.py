"""A compiled module is compared with itself at several numbers of inputs: what hangs on their number is refused."""

import copy
import pickle

import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn import functional as F

import spdnn
from spdnn.ops.torch import export


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """No compiled model times its products."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


class Does(nn.Module):
    """A Linear layer (8, 4), and what `forward` makes of it."""

    def __init__(self, does):
        super().__init__()
        self.layer, self.does = nn.Linear(8, 4), does

    def forward(self, *inputs):
        return self.does(self.layer, *inputs)


def compiled(does, *example, **options):
    return spdnn.compile(Does(does).eval(), example=example or torch.randn(4, 8), threads=1, **options)


@pytest.mark.parametrize(
    ("does", "count"),
    [
        (lambda layer, x: layer(x) if len(x) > 1 else layer(x).abs() + 1, "1 input"),
        (lambda layer, x: layer(x) * (2 if x.shape[0] == 3 else 1), "3 inputs"),
        (lambda layer, x: layer(x) if x.size(0) <= 20 else layer(x) + 1, "21 inputs"),
        (lambda layer, x: layer(x) if x.size(0) < 37 else layer(x)[1:], "37 inputs"),
        (lambda layer, x: torch.cat([layer(x[start : start + 3]) for start in range(0, len(x), 3)]), r"\d+ inputs?"),
        (lambda layer, x: layer(torch.cat([x, x.new_zeros(4 - len(x), 8)]) if len(x) < 4 else x)[: len(x)].relu()
         if len(x) != 2 else layer(x).sigmoid(), "2 inputs"),
    ],
)  # fmt: skip
def test_what_hangs_on_the_number_of_inputs_is_refused_with_it(does, count):
    refuses(f"^Does: (torch.onnx cannot export it|compiled, it .* with {count}; its forward)", compiled, does)


def test_the_number_of_a_refusal_is_one_that_differs():
    refuses("^Does: compiled, it gives other numbers than itself with 1 input; its forward may hang on their number, ",
            compiled, lambda layer, x: layer(x) * 2 if len(x) == 1 else layer(x))  # fmt: skip
    refuses(r"^Does: compiled, it gives an output of shape \(5, 4\), and itself \(4, 4\), with 5 inputs; ",
            compiled, lambda layer, x: layer(x)[:4] if len(x) > 4 else layer(x))  # fmt: skip


@pytest.mark.parametrize("width", [8, 16])
def test_numbers_that_the_module_itself_refuses_are_left_out_and_named(width):
    def does(layer, x):
        if len(x) < 3:
            raise ValueError("three or more")
        return layer(x).relu() @ torch.eye(4)[:, :2] if width == 8 else layer(x)

    model = compiled(does)
    *_, told = model.explain().splitlines()
    assert told.startswith("compared with Does at 4, 3")
    assert told.endswith("".join(f"; not at {count}, where it ends itself (three or more)" for count in (1, 2)))
    assert len(model(torch.randn(5, 8))) == 5


@pytest.mark.parametrize(
    "does",
    [
        lambda layer, x: F.dropout(layer(x), 0.5, training=True),
        lambda layer, x: layer(x) + torch.randn(4),
        lambda layer, x: layer(x) * torch.bernoulli(torch.full((len(x), 4), 0.5)),
        lambda layer, x: (layer(x), torch.rand(len(x)))[0] + torch.rand(()),
    ],
)
def test_numbers_that_are_drawn_are_a_sentence(does):
    refuses("^Does: its outputs hang on random numbers that each call draws", compiled, does)


def test_numbers_that_are_drawn_for_nothing_are_none():
    assert len(compiled(lambda layer, x: layer(x) * (torch.rand(()) < 2))(torch.randn(3, 8))) == 3


def test_rows_of_several_inputs_go_together_and_others_stay():
    def does(layer, x, ids, table):
        return layer(x) + table[ids]

    example = torch.randn(4, 8), torch.tensor([0, 5, 2, 5]), torch.randn(6, 4)
    model, module = compiled(does, *example), Does(does).eval()
    assert "compared with Does at 4, 1, 2, 3" in model.explain()
    rows = export._rows(example, 7)
    assert [len(each) for each in rows] == [7, 7, 6]
    for k in range(4, 7):
        same = [all(torch.equal(each[k], each[j]) for each in rows[:2]) for j in range(4)]
        assert any(same)
    assert module(*rows).shape == (7, 4)


def test_a_drawn_number_is_another_one_each_time_and_draws_nothing_of_the_users():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    drawn = {tuple(export._counts(4, ())) for _ in range(50)}
    assert len(drawn) > 3
    assert all(counts[:3] == (1, 2, 3) and 4 < counts[3] <= export.MOST_COMPARED for counts in drawn if len(counts) > 3)
    assert export._counts(2, {38})[-1] == 38
    assert torch.equal(state, torch.get_rng_state())


def test_what_was_compared_stays_with_the_model_and_nothing_is_without_verify():
    model = compiled(lambda layer, x: layer(x))
    for one in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert "compared with Does at 4, 1, 2, 3" in one.explain()
    assert "compared" not in compiled(lambda layer, x: layer(x), verify=False).explain()
    one = compiled(lambda layer, x: layer(x) * 2 if len(x) == 1 else layer(x), verify=False)
    assert len(one(torch.randn(1, 8))) == 1


@pytest.mark.parametrize(
    "jumps",
    [
        lambda y: F.softplus(y),  # in ONNX a comparison and a choice
        lambda y: torch.where(y > 0, y, 0.1 * y),
        lambda y: y.round(decimals=1) + y,
    ],
)
def test_operators_that_jump_hide_no_other_path(jumps):
    refuses("^Does: compiled, it gives other numbers than itself with 1 input; ",
            compiled, lambda layer, x: jumps(layer(x)) * (2 if len(x) == 1 else 1))  # fmt: skip
    with compiled(lambda layer, x: jumps(layer(x))) as model:
        assert "compared with Does at 4, 1, 2, 3, " in model.explain()


def test_whole_numbers_are_compared_too():
    refuses("^Does: compiled, it gives other numbers than itself with 1 input; ",
            compiled, lambda layer, x: layer(x).argmax(1) + (7 if len(x) == 1 else 0))  # fmt: skip


def test_sums_that_cancel_may_differ_by_rounding():
    """Of what a LayerNorm gives, whose sum is zero but for rounding."""
    with compiled(lambda layer, x: F.layer_norm(layer(x).repeat(1, 64), (256,)).sum(1)) as model:
        assert "compared with Does" in model.explain()
    refuses("gives other numbers than itself with 1 input", compiled,
            lambda layer, x: F.layer_norm(layer(x).repeat(1, 64), (256,)).sum(1) + 1e-3 * (len(x) == 1))  # fmt: skip


class First(nn.Module):
    """Keeps something of its first inputs."""

    def __init__(self, keeps):
        super().__init__()
        self.layer, self.keeps, self.kept = nn.Linear(8, 4), keeps, None

    def forward(self, x):
        y = self.layer(x)
        if self.kept is None:
            self.kept = self.keeps(y)
        return y + self.kept


@pytest.mark.parametrize("keeps", [lambda y: y.mean(0), lambda y: float(y.max()), lambda y: y[:1].abs()])
def test_what_is_kept_of_the_first_inputs_is_a_state(keeps):
    refuses(r"^First: its first call fills kept, and a compiled model has no state; ",
            spdnn.compile, First(keeps).eval(), example=torch.randn(4, 8), threads=1)  # fmt: skip


def test_what_the_first_call_fills_whatever_its_inputs():
    module = First(lambda y: torch.arange(y.shape[1])).eval()
    with spdnn.compile(module, example=torch.randn(4, 8), threads=1) as model:
        x = torch.randn(7, 8)
        torch.testing.assert_close(model(x), module(x).detach())
