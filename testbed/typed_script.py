"""A user's script with types, for mypy; nothing runs it. Should mypy find no mistake in one of the
last two lines, it reports an `ignore` without use."""

from pathlib import Path

import pandas as pd
import torch
from torch import nn

import bitfront as bf


class MyNet(nn.Module):
    """Any network."""


found: bf.OpenedSearch = bf.Search(
    model=MyNet, data="digits", methods=["bnn"], trials=3, epochs=2
).run(quiet=True)
front: pd.DataFrame = found.front
files: list[Path] = found.export(budget="40%").train(seeds=3).networks
net: nn.Module = bf.load(files[0])
handle = bf.binarize(MyNet(), plan="B", method="bnn++", mu_end=30)
optimizer: torch.optim.Optimizer = handle.attach(torch.optim.SGD(handle.parameters(), 0.1))
costs: dict[str, float] = bf.cost(MyNet(), "B", (3, 32, 32))
plan: str = bf.select(MyNet, "digits", budget=0.4)
size: int = bf.save(MyNet(), "net.safetensors")
wrong: int = bf.select(MyNet, "digits")  # type: ignore[assignment]
bf.binarize("MyNet")  # type: ignore[arg-type]
