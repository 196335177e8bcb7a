"""The drawings of the site as SVG: F and B of a method, computed by the code that trains, and the
picture of a search on the page of concepts.

python -m website.drawings > docs/pictures/concepts.svg"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import torch

from bitfront.trainables.methods import METHODS
from bitfront.trainables.methods.quantizer_pair import QuantizerPair
from website.equations import curve, notes

# Okabe and Ito, from the start of the schedule to its end.
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
LATENTS = torch.arange(-200, 201) / 100
# Width and height of a plot, and the margin for its numbers.
WIDTH, HEIGHT, MARGIN = 300, 190, 34

STYLE = """\
:root > * { --md-primary-fg-color: #0b4f6c; --md-accent-fg-color: #d55e00; }
[data-md-color-scheme="slate"] { --md-typeset-a-color: #6bb8dd; }
.md-grid { max-width: 70rem; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
.plots svg { flex: 1 1 16rem; max-width: 26rem; height: auto; }
.plots text { fill: currentColor; font: 11px var(--md-text-font-family, sans-serif); }
.plots .axis { stroke: currentColor; stroke-opacity: .3; }
math[display="block"] { overflow-x: auto; padding: .5rem 0; text-align: left; }
.md-typeset img[src$="concepts.svg"] { background: #fff; border-radius: .3rem; }
.md-typeset table:not([class]) { font-size: .62rem; }
.md-typeset table:not([class]) :is(th, td) { min-width: 2.5rem; padding: .6em .8em; }
.md-typeset td code { overflow-wrap: normal; word-break: normal; }
@media (max-width: 45em) {
  .md-typeset table:not([class]) :is(th, td) { min-width: 6rem; padding: .4em .5em; }
  .md-typeset table:not([class]) :is(th, td):first-child { min-width: 3.5rem; }
}
.md-typeset img[src$="front.png"] { max-width: min(100%, 30rem); }
.md-typeset img[src$="layers.png"] { max-width: min(100%, 26rem); }
.md-typeset img[src$=".png"] { border-radius: .3rem; }
"""


def curves_of(name: str) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """(annealed values, F, B) of a method over the latents, at fractions of its schedule; one value
    where nothing is annealed."""
    method = METHODS.get(name)()
    assert isinstance(method, QuantizerPair)
    pair = method.pair()
    values = list(dict.fromkeys(method.value_at(fraction) for fraction in FRACTIONS))
    forward, backward = [], []
    for value in values:
        w = LATENTS.clone().requires_grad_()
        out = pair(w, value, torch.zeros(1)) if pair.shifted else pair(w, value)
        (slope,) = torch.autograd.grad(out.sum(), w)
        forward.append(out.tolist())
        backward.append(slope.tolist())
    return values, forward, backward


def quantizer(name: str, symbol: str | None) -> str:
    """F and B of a method side by side, by the code that trains; of a method without such a pair
    by the equations of its note; '' where it has none either."""
    latent = "w"
    if issubclass(METHODS.get(name), QuantizerPair):
        values, forward, backward = curves_of(name)
    elif "curve" in notes()[name]:
        note = notes()[name]["curve"]
        latent, symbol = note["latent"], "beta" if "beta" in note else None
        values = note.get("beta", [1.0])
        forward, backward = (
            [[float(curve(name, side, value)(w)) for w in LATENTS.tolist()] for value in values]
            for side in ("forward", "backward")
        )
    else:
        return ""
    legend = [f"{symbol} = {value:.3g}" if symbol else "" for value in values]
    plots = (
        _plot(f"F of {name}", "F", forward, legend, latent),
        _plot(f"B of {name}", "B", backward, [], latent),
    )
    return f'<div class="plots">{"".join(plots)}</div>'


def _plot(
    title: str, label: str, lines: Sequence[Sequence[float]], legend: Sequence[str], latent: str
) -> str:
    low = min(0.0, *(min(line) for line in lines))
    high = max(0.0, *(max(line) for line in lines))
    left, right = float(LATENTS[0]), float(LATENTS[-1])

    def place(w: float, y: float) -> tuple[float, float]:
        return (
            MARGIN + (w - left) / (right - left) * (WIDTH - MARGIN - 8),
            16 + (high - y) / (high - low) * (HEIGHT - 16 - 22),
        )

    (x0, bottom), (x1, y0) = place(left, low), place(right, 0)
    middle, _ = place(0, 0)
    shown = f"latent {escape(latent)}"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>',
        f'<path class="axis" d="M{x0:.0f} {y0:.1f}H{x1:.0f}M{middle:.1f} 12V{bottom:.1f}"/>',
        f'<text x="{middle + 4:.0f}" y="11">{label}</text>',
        f'<text x="{x1:.0f}" y="{HEIGHT - 5}" text-anchor="end">{shown} = {right:g}</text>',
        f'<text x="{x0:.0f}" y="{HEIGHT - 5}">{left:g}</text>',
    ]
    for y in {round(low, 1), 0.0, round(high, 1)}:
        if y == 0 or abs(y) > 0.1 * (high - low):  # else its number would lie on that of 0
            parts.append(f'<text x="2" y="{place(0, y)[1] + 4:.1f}">{y:.3g}</text>')
    for i, line in enumerate(lines):
        points = [place(w, y) for w, y in zip(LATENTS.tolist(), line, strict=True)]
        steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        colour = COLOURS[i * (len(COLOURS) - 1) // max(1, len(lines) - 1)]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{steps}"/>')
        if legend and legend[i]:
            row = f'<text x="{x1:.0f}" y="{60 + 13 * i:.0f}" text-anchor="end"'
            parts.append(f'{row} style="fill:{colour}">{escape(legend[i])}</text>')
    return "".join([*parts, "</svg>"])


# --- the page of concepts -------------------------------------------------------------------------

# Boxes by their corner, in columns and rows: title and two lines below it.
BOXES = {
    "yaml": (0, 0, "search.yaml", "task, space,", "objectives, trials"),
    "sampler": (1, 0, "sampler", "asks for the next point:", "method, plan, settings"),
    "ledger": (0, 1, "ledger", "Optuna's study on disk:", "all that resume needs"),
    "trials": (1, 1, "trials", "trained by Ray, measured", "with hard signs"),
    "front": (0, 2, "front", "accuracy against cost:", "what no trial beats"),
    "costs": (1, 2, "costs", "exact before training:", "FLOPs, bytes, latency"),
    "recipe": (0, 3, "recipe.yaml", "a point of the front", "for a budget"),
    "train": (1, 3, "final training", "all data, several seeds,", "the only test set"),
    "deployed": (1, 4, "deployed", "one bit a weight: torch,", "ONNX, OpenVINO, C"),
}
ARROWS = (
    ("yaml", "sampler", "run"),
    ("sampler", "trials", ""),
    ("trials", "ledger", ""),
    ("ledger", "sampler", ""),
    ("ledger", "front", ""),
    ("costs", "front", ""),
    ("front", "recipe", "export"),
    ("recipe", "train", "train"),
    ("train", "deployed", "deploy"),
)
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 192, 84, 66, 44


def concepts() -> str:
    """What happens in a search, as one drawing."""
    columns = 1 + max(column for column, *_ in BOXES.values())
    rows = 1 + max(row for _, row, *_ in BOXES.values())
    width = columns * (BOX_WIDTH + GAP_X) - GAP_X + 20
    height = rows * (BOX_HEIGHT + GAP_Y) - GAP_Y + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="sans-serif">',
        "<title>From a YAML to a deployed network</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for start, end, verb in ARROWS:
        x0, y0, x1, y1 = _between(start, end)
        parts.append(
            f'<path d="M{x0} {y0}L{x1} {y1}" stroke="#555" stroke-width="2" '
            'marker-end="url(#tip)"/>'
        )
        if verb:
            x, y = (x0 + x1) / 2, (y0 + y1) / 2
            side = 'x="{:.0f}" y="{:.0f}"'.format(
                *((x + 8, y + 4) if x0 == x1 else (x - 18, y - 8))
            )
            parts.append(f'<text {side} font-size="13" fill="#b34700">{verb}</text>')
    for name, (_, _, title, *lines) in BOXES.items():
        x, y = _corner(name)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" '
            'fill="#eef5f9" stroke="#0b4f6c" stroke-width="1.5"/>'
            f'<text x="{x + 14}" y="{y + 27}" font-size="17" font-weight="bold" '
            f'fill="#0b4f6c">{title}</text>'
        )
        for i, line in enumerate(lines):
            parts.append(
                f'<text x="{x + 14}" y="{y + 49 + 19 * i}" font-size="14" fill="#222">{line}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _corner(name: str) -> tuple[int, int]:
    column, row = BOXES[name][0], BOXES[name][1]
    return 10 + column * (BOX_WIDTH + GAP_X), 10 + row * (BOX_HEIGHT + GAP_Y)


def _between(start: str, end: str) -> tuple[int, int, int, int]:
    """The ends of an arrow from the edge of one box to that of another."""
    (x0, y0), (x1, y1) = _corner(start), _corner(end)
    half = BOX_WIDTH // 2
    if y0 == y1:
        right = x1 > x0
        middle = y0 + BOX_HEIGHT // 2
        return x0 + BOX_WIDTH * right, middle, x1 + BOX_WIDTH * (not right), middle
    down = y1 > y0
    shift = (x1 > x0) - (x1 < x0)  # of an arrow that goes to another column
    return (
        x0 + half + shift * half // 2,
        y0 + BOX_HEIGHT * down,
        x1 + half - shift * half // 2,
        y1 + BOX_HEIGHT * (not down),
    )


if __name__ == "__main__":
    print(concepts(), end="")
