"""What website/methods.yaml says of each method: its F and B as expressions that can be evaluated,
its equations in LaTeX."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import sympy
import yaml

NOTES = Path(__file__).parent / "methods.yaml"
SYMBOLS = {
    name: sympy.Symbol(name, real=True)
    for name in ["w", "x", "a", "c", "k", "t", "mu", "rho", "beta"]
}


@cache
def notes() -> dict[str, dict[str, Any]]:
    """The notes of all methods."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(NOTES.read_text())
    return found


def evaluated(name: str, side: str, value: float) -> Any:
    """F (`forward`) or B (`backward`) of a method as a function of w, where what is annealed has
    this value."""
    note = notes()[name]
    found = sympy.sympify(note[side], SYMBOLS)
    for symbol, meaning in {**note.get("where", {}), **note.get("drawn", {})}.items():
        found = found.subs(SYMBOLS[symbol], sympy.sympify(meaning, SYMBOLS))
    if "value" in note:
        found = found.subs(SYMBOLS[note["value"]], value)
    return sympy.lambdify(SYMBOLS["w"], found)


def curve(name: str, side: str, value: float) -> Any:
    """The same of a method whose note has a `curve`, at a value of beta."""
    found = sympy.sympify(notes()[name]["curve"][side], SYMBOLS).subs(SYMBOLS["beta"], value)
    return sympy.lambdify(SYMBOLS["w"], found)


def latex(name: str) -> list[str]:
    """The equations of a method, in LaTeX."""
    note = notes().get(name, {})
    lines = [
        f"{letter}(w) = {_as_written(note[side])}"
        for side, letter in (("forward", "F"), ("backward", "B"))
        if side in note
    ]
    for symbol, meaning in note.get("where", {}).items():
        told = sympy.latex(sympy.sympify(meaning, SYMBOLS))
        lines.append(f"{sympy.latex(SYMBOLS[symbol])} = {told}")
    return [*lines, *note.get("lines", [])]


def _as_written(expression: str) -> str:
    """An expression in LaTeX, its terms in the order in which they are written."""
    with sympy.evaluate(False):
        parsed = sympy.sympify(expression, SYMBOLS | {"sign": sympy.Function("sign")})
    text: str = sympy.latex(parsed, order="none", mul_symbol=r" \, ")
    return text
