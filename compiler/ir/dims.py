"""Symbolic dimensions: integer polynomials over named sizes, in a canonical form, so that equality is syntactic.

A dimension (`Dim`) is an `int`, an `Expr`, or `None` when nothing is known (not even that it equals itself elsewhere).
`b`, `7*b`, `b + 3`, `ceil(b/2)`, `floor(b/3)`, `max(a, b)`, `min(a, b)` are expressions; `parse_dim(str(d)) == d`.
Every symbol stands for a size, so it is at least 0.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword
from typing import TypeAlias

from compiler.ir.errors import IrError

Dim: TypeAlias = "int | Expr | None"
KnownDim: TypeAlias = "int | Expr"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True)
class Atom:
    """A named size (`op == "symbol"`) or an irreducible function of two dimensions (`ceil`, `floor`, `max`, `min`)."""

    op: str
    name: str = ""
    arguments: tuple[KnownDim, ...] = ()

    @cached_property
    def text(self) -> str:
        if self.op == "symbol":
            return self.name
        left, right = (str(a) for a in self.arguments)
        if self.op in ("max", "min"):
            return f"{self.op}({left}, {right})"
        return f"{self.op}({_parenthesised(self.arguments[0])}/{_parenthesised(self.arguments[1])})"

    def symbols(self) -> frozenset[str]:
        if self.op == "symbol":
            return frozenset((self.name,))
        return frozenset().union(*(symbols(a) for a in self.arguments))


def _parenthesised(dim: KnownDim) -> str:
    text = str(dim)
    bare = text.isidentifier() or text.isdigit() or (text.startswith(("ceil(", "floor(", "max(", "min(")) and _one_call(text))
    return text if bare else f"({text})"


def _one_call(text: str) -> bool:
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == ")" and depth == 0:
            return position == len(text) - 1
    return False


@dataclass(frozen=True)
class Expr:
    """A non-constant polynomial: sorted `(monomial, coefficient)` pairs, coefficients non-zero; the empty monomial is the constant."""

    terms: tuple[tuple[Monomial, int], ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        parts = [_term_text(monomial, coefficient) for monomial, coefficient in self.terms]
        return " + ".join(parts).replace("+ -", "- ")

    __repr__ = __str__

    def __add__(self, other: KnownDim) -> KnownDim:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: KnownDim) -> KnownDim:
        return add(self, mul(-1, other))

    def __rsub__(self, other: KnownDim) -> KnownDim:
        return add(other, mul(-1, self))

    def __mul__(self, other: KnownDim) -> KnownDim:
        return mul(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> KnownDim:
        return mul(-1, self)

    def __floordiv__(self, other: KnownDim) -> KnownDim:
        return floor_div(self, other)


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [a.text for a in monomial]
    if not factors:
        return str(coefficient)
    if coefficient == 1:
        return "*".join(factors)
    if coefficient == -1:
        return "-" + "*".join(factors)
    return "*".join([str(coefficient), *factors])


def symbol(name: str) -> Expr:
    """The size called `name`, an identifier."""
    if not (name.isascii() and name.isidentifier()) or iskeyword(name) or name in ("ceil", "floor", "max", "min"):
        raise IrError(f"dimension name {name!r} is not usable, expected an identifier such as 'b'")
    return Expr((((Atom("symbol", name),), 1),))


def _terms(dim: KnownDim) -> dict[Monomial, int]:
    if isinstance(dim, Expr):
        return dict(dim.terms)
    return {(): int(dim)} if dim else {}


def _from_terms(terms: Mapping[Monomial, int]) -> KnownDim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Expr(tuple(sorted(kept.items(), key=_term_key)))


def _term_key(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    monomial = term[0]
    return (-len(monomial), tuple(a.text for a in monomial))


def add(left: KnownDim, right: KnownDim) -> KnownDim:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    terms = _terms(left)
    for monomial, coefficient in _terms(right).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _from_terms(terms)


def mul(left: KnownDim, right: KnownDim) -> KnownDim:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    terms: dict[Monomial, int] = {}
    for m1, c1 in _terms(left).items():
        for m2, c2 in _terms(right).items():
            monomial = tuple(sorted(m1 + m2, key=lambda a: a.text))
            terms[monomial] = terms.get(monomial, 0) + c1 * c2
    return _from_terms(terms)


def exact_div(dividend: KnownDim, divisor: KnownDim) -> KnownDim | None:
    """The quotient where it is a polynomial with no remainder, else None.  A single-term divisor is taken as non-zero."""
    if divisor == 0:
        return None
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor if dividend % divisor == 0 else None
    if dividend == divisor:
        return 1
    divisor_terms = _terms(divisor)
    if len(divisor_terms) != 1:
        return None
    ((monomial, coefficient),) = divisor_terms.items()
    quotient: dict[Monomial, int] = {}
    for m, c in _terms(dividend).items():
        rest = list(m)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        quotient[tuple(rest)] = c // coefficient
    return _from_terms(quotient)


def ceil_div(dividend: KnownDim, divisor: KnownDim) -> KnownDim:
    """ceil(dividend / divisor), the divisor positive."""
    exact = exact_div(dividend, divisor) if isinstance(divisor, int) or not isinstance(dividend, int) else None
    if exact is not None:
        return exact
    if isinstance(dividend, int) and isinstance(divisor, int):
        return -(-dividend // divisor)
    return _split_whole("ceil", dividend, divisor)


def floor_div(dividend: KnownDim, divisor: KnownDim) -> KnownDim:
    """floor(dividend / divisor), the divisor positive."""
    exact = exact_div(dividend, divisor) if isinstance(divisor, int) or not isinstance(dividend, int) else None
    if exact is not None:
        return exact
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor
    return _split_whole("floor", dividend, divisor)


def _split_whole(op: str, dividend: KnownDim, divisor: KnownDim) -> KnownDim:
    """ceil((2*b + r)/2) = b + ceil(r/2): multiples of an integer divisor leave the rounding."""
    if not isinstance(divisor, int):
        return _atom(op, dividend, divisor)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(dividend).items():
        quotient, remainder = divmod(coefficient, divisor)
        whole[monomial], rest[monomial] = quotient, remainder
    remainder_dim = _from_terms(rest)
    rounded = (
        (floor_div if op == "floor" else ceil_div)(remainder_dim, divisor)
        if isinstance(remainder_dim, int)
        else _atom(op, remainder_dim, divisor)
    )
    return add(_from_terms(whole), rounded)


def _atom(op: str, left: KnownDim, right: KnownDim) -> Expr:
    return Expr((((Atom(op, arguments=(left, right)),), 1),))


def max_dim(left: KnownDim, right: KnownDim) -> KnownDim:
    return _extreme("max", left, right, max)


def min_dim(left: KnownDim, right: KnownDim) -> KnownDim:
    return _extreme("min", left, right, min)


def _extreme(op: str, left: KnownDim, right: KnownDim, choose: Callable[[int, int], int]) -> KnownDim:
    if isinstance(left, int) and isinstance(right, int):
        return choose(left, right)
    difference = add(left, mul(-1, right))
    if isinstance(difference, int):
        return left if (difference >= 0) == (op == "max") else right
    ordered = sorted((left, right), key=str)
    return _atom(op, ordered[0], ordered[1])


def symbols(dim: Dim) -> frozenset[str]:
    """The names a dimension depends on."""
    if not isinstance(dim, Expr):
        return frozenset()
    return frozenset().union(*(a.symbols() for monomial, _ in dim.terms for a in monomial))


def evaluate(dim: KnownDim, sizes: Mapping[str, int]) -> int:
    """The value at concrete `sizes`; IrError names a symbol without one."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        total += coefficient * math.prod(_evaluate_atom(a, sizes) for a in monomial)
    return total


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if atom.op == "symbol":
        if atom.name not in sizes:
            raise IrError(f"dimension {atom.name!r} has no size here, expected one of {sorted(sizes)}")
        return sizes[atom.name]
    left, right = (evaluate(a, sizes) for a in atom.arguments)
    match atom.op:
        case "max":
            return max(left, right)
        case "min":
            return min(left, right)
        case "ceil":
            return -(-left // right)
        case _:
            return left // right


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """`dim` with symbols replaced; a symbol mapped to None makes the whole dimension unknown."""
    if not isinstance(dim, Expr) or not symbols(dim) & values.keys():
        return dim
    total: KnownDim = 0
    for monomial, coefficient in dim.terms:
        product: KnownDim = coefficient
        for atom in monomial:
            factor = _substitute_atom(atom, values)
            if factor is None:
                return None
            product = mul(product, factor)
        total = add(total, product)
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if atom.op == "symbol":
        return values[atom.name] if atom.name in values else symbol(atom.name)
    left, right = (substitute(a, values) for a in atom.arguments)
    if left is None or right is None:
        return None
    return {"max": max_dim, "min": min_dim, "ceil": ceil_div, "floor": floor_div}[atom.op](left, right)


def parse_dim(text: str) -> Dim:
    """The inverse of `str`; `?` is the unknown dimension."""
    if text.strip() == "?":
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise IrError(f"dimension {text!r} is not an expression such as 'b', '7*b' or 'ceil(b/2)'") from None
    return _from_ast(tree, text)


def _from_ast(tree: ast.expr, text: str) -> KnownDim:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return mul(-1, _from_ast(operand, text))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return add(_from_ast(left, text), _from_ast(right, text))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return add(_from_ast(left, text), mul(-1, _from_ast(right, text)))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return mul(_from_ast(left, text), _from_ast(right, text))
        case ast.Call(func=ast.Name(id="max" | "min" as op), args=[left, right]):
            return (max_dim if op == "max" else min_dim)(_from_ast(left, text), _from_ast(right, text))
        case ast.Call(func=ast.Name(id="ceil" | "floor" as op), args=[ast.BinOp(left=left, op=ast.Div(), right=right)]):
            return (ceil_div if op == "ceil" else floor_div)(_from_ast(left, text), _from_ast(right, text))
    raise IrError(f"dimension {text!r} is not an expression such as 'b', '7*b' or 'ceil(b/2)'")
