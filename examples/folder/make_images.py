"""Writes images/CLASS/NUMBER.png: circles, squares, triangles and crosses on noise."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

EACH = 120
SIDE = 40


def draw(kind: str, rng: np.random.Generator) -> Image.Image:
    """One image: a figure of any colour, size and place."""
    image = Image.fromarray(rng.integers(0, 110, (SIDE, SIDE, 3), dtype=np.uint8))
    pen = ImageDraw.Draw(image)
    radius = int(rng.integers(7, 13))
    x, y = (int(c) for c in rng.integers(radius + 1, SIDE - radius - 1, 2))
    colour = tuple(int(c) for c in rng.integers(130, 256, 3))
    box = (x - radius, y - radius, x + radius, y + radius)
    if kind == "circle":
        pen.ellipse(box, fill=colour)
    elif kind == "square":
        pen.rectangle(box, fill=colour)
    elif kind == "triangle":
        pen.polygon([(x, box[1]), (box[2], box[3]), (box[0], box[3])], fill=colour)
    else:
        pen.line(box, fill=colour, width=5)
        pen.line((box[0], box[3], box[2], box[1]), fill=colour, width=5)
    return image


rng = np.random.default_rng(0)
for kind in ("circle", "square", "triangle", "cross"):
    folder = Path("images") / kind
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(EACH):
        draw(kind, rng).save(folder / f"{number:03}.png")
