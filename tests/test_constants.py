"""One name, one value: a constant that is a number is defined in one module, and the others import it from there."""

import ast
import operator

from spdnn.core.provenance import PACKAGE

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
}  # fmt: skip


def number(node, known):
    """The value of an expression of numbers and names of `known` numbers, also as a NumPy type; None of any other."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func).startswith("np.float"):
        return number(node.args[0], known)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return None if (value := number(node.operand, known)) is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        values = number(node.left, known), number(node.right, known)
        return None if None in values else OPERATORS[type(node.op)](*values)
    if isinstance(node, ast.Name):
        return known.get(node.id)
    return node.value if isinstance(node, ast.Constant) and type(node.value) in (int, float) else None


def constants(source):
    """By name, the numbers that a module defines under names in capitals."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
                for name, value in pairs:
                    if isinstance(name, ast.Name) and name.id.isupper() and number(value, found) is not None:
                        found[name.id] = number(value, found)
    return found


def test_a_constant_is_read_whatever_its_form():
    source = "A = 4\n"
    source += "B, C = 1 << 20, -2.0**-24\nD: int = 3 * 2 + 1\nE = F = A // 2\nG = len('ab')\nh = 5\nI = np.float32(A)\n"
    assert constants(source) == {"A": 4, "B": 1 << 20, "C": -(2.0**-24), "D": 7, "E": 2, "F": 2, "I": 4}


def test_a_name_of_a_number_is_defined_once():
    places = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, value in constants(path.read_text(encoding="utf-8")).items():
            places.setdefault(name, []).append(f"{path.relative_to(PACKAGE)}: {value}")
    assert len(places) > 100
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
