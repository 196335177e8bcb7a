"""What layers are for, in the residual networks people write: a layer on a branch of its own is a
shortcut, one whose output an identity takes along is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.cost import trace


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def up(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(inputs, outputs, 2, 2)


class Net(nn.Module):
    """stem, then what `body` does with the layers, then head."""

    def __init__(self, body: Callable[[Net, Tensor], Tensor], layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.stem, self.head = conv(3, 8), nn.LazyLinear(5)
        self.body = body
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self, self.stem(x)).mean((2, 3)))
        return out


def identity(n: Net, x: Tensor) -> Tensor:
    x = F.relu(x)
    x = F.relu(x + n.b(F.relu(n.a(x))))
    return F.relu(x + n.d(F.relu(n.c(x))))


def linear_bottlenecks(n: Net, x: Tensor) -> Tensor:
    """No activation at the end of a block, as in MobileNetV2: the identity takes along the output
    of a layer as it is."""
    x = n.a(F.relu(x))
    x = x + n.c(F.relu(n.b(x)))
    return x + n.e(F.relu(n.d(x)))


def identity_of_the_stem(n: Net, x: Tensor) -> Tensor:
    return x + n.b(F.relu(n.a(x)))


def every_layer(n: Net, x: Tensor) -> Tensor:
    """An identity around every layer, as in Bi-Real nets."""
    for layer in (n.a, n.b, n.c):
        x = x + n.norm(layer(x))
    return x


def projection(n: Net, x: Tensor) -> Tensor:
    x = F.relu(x)
    x = F.relu(n.b(F.relu(n.a(x))) + n.side(x))
    return F.relu(x + n.d(F.relu(n.c(x))))


def pooled_projection(n: Net, x: Tensor) -> Tensor:
    x = F.relu(x)
    return F.relu(n.side(F.avg_pool2d(x, 2)) + n.b(F.relu(n.a(x))))


def pre_activation(n: Net, x: Tensor) -> Tensor:
    y = F.relu(n.norm(x))
    x = n.b(F.relu(n.a(y))) + n.side(y)
    return x + n.d(F.relu(n.c(F.relu(x))))


def dense(n: Net, x: Tensor) -> Tensor:
    x = torch.cat([x, F.relu(n.a(x))], 1)
    return torch.cat([x, F.relu(n.b(x))], 1)


def squeeze_excite(n: Net, x: Tensor) -> Tensor:
    y = n.b(F.relu(n.a(x)))
    gate = torch.sigmoid(n.d(F.relu(n.c(y.mean((2, 3))))))
    return F.relu(x + y * gate[:, :, None, None])


def u_net(n: Net, x: Tensor) -> Tensor:
    a = F.relu(n.a(x))
    b = F.relu(n.b(a))
    y = F.relu(n.d(torch.cat([n.c(b), a], 1)))
    return F.relu(n.f(torch.cat([n.e(y), x], 1)))


def u_net_of_sums(n: Net, x: Tensor) -> Tensor:
    a = F.relu(n.a(x))
    b = F.relu(n.b(a))
    y = F.relu(n.d(n.c(b) + a))
    return F.relu(n.e(y) + x)


same = {name: conv(8, 8) for name in "abcde"}
wider = {"a": conv(8, 16, 3, 2), "b": conv(16, 16), "side": conv(8, 16, 1, 2)}
deeper = {**wider, "c": conv(16, 16), "d": conv(16, 16)}
down = {"a": conv(8, 16, 3, 2), "b": conv(16, 32, 3, 2), "c": up(32, 16)}


@pytest.mark.parametrize(
    ("body", "layers", "planned", "shortcuts"),
    [
        (identity, same, "abcd", []),
        (linear_bottlenecks, same, "abcde", []),
        (identity_of_the_stem, same, "ab", []),
        (every_layer, {**same, "norm": nn.BatchNorm2d(8)}, "abc", []),
        (projection, deeper, "abcd", ["side"]),
        (pooled_projection, {**wider, "side": conv(8, 16, 1)}, "ab", ["side"]),
        (pre_activation, {**deeper, "norm": nn.BatchNorm2d(8)}, "abcd", ["side"]),
        (dense, {"a": conv(8, 4), "b": conv(12, 4)}, "ab", []),
        (squeeze_excite, same | {"c": nn.Linear(8, 2), "d": nn.Linear(2, 8)}, "abcd", []),
        (u_net, {**down, "d": conv(32, 16), "e": up(16, 8), "f": conv(16, 8)}, "abcdef", []),
        (u_net_of_sums, {**down, "d": conv(16, 16), "e": up(16, 8)}, "abcde", []),
    ],
)
def test_shortcuts_are_layers_on_branches_of_their_own(
    body: Callable[[Net, Tensor], Tensor],
    layers: dict[str, nn.Module],
    planned: str,
    shortcuts: list[str],
) -> None:
    net = Net(body, layers)
    net(torch.zeros(1, 3, 16, 16))  # which makes the head
    table = trace(net, (3, 16, 16), by_names=False)
    roles = {layer.name: layer.role for layer in table.layers}
    assert sorted(layer.name for layer in table.plan_layers) == list(planned)
    assert [name for name, role in roles.items() if role == "shortcut"] == shortcuts
    assert (roles["stem"], roles["head"]) == ("first", "last")
