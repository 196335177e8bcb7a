"""Where binary layers are faster and where not: layers by channels and by examples per call, and
whole networks at F, W and B, against torch and, where it is installed, onnxruntime in fp32 and in
int8.

    python -m benchmarks.crossover

One thread, the clock of the process, calls side by side; milliseconds. Packing of inputs is
included, batch norms are not, but in whole networks. int8 is onnxruntime's static quantization,
weights by channel; its times say nothing about its accuracy."""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.inference import both_formats, onnx_call, shape_of
from benchmarks.table import Row, csv_path, format_table, write_csv
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.runtime.network import fast
from bitfront.trainables.runtime.planned import Subject
from bitfront.trainables.runtime.threads import using
from bitfront.trainables.runtime.timing import milliseconds
from testbed.binary_nets import made_binary

# (inputs, outputs, side of the image, examples) of 3x3 convolutions.
LAYERS = (
    (3, 64, 32, 1),
    (8, 8, 32, 1),
    (16, 16, 32, 1),
    (32, 32, 16, 1),
    (64, 64, 16, 1),
    (128, 128, 16, 1),
    (256, 256, 16, 1),
    (64, 64, 16, 8),
    (64, 64, 16, 32),
)
# (model, parameters, shape, examples).
NETWORKS: tuple[tuple[str, dict[str, Any], tuple[int, ...], int], ...] = (
    ("cresnet20", {}, (3, 32, 32), 1),
    ("cresnet20", {}, (3, 32, 32), 16),
    ("cresnet", {"depth": 20, "width": 64}, (3, 32, 32), 1),
    ("cresnet", {"depth": 20, "width": 64}, (3, 32, 32), 16),
    ("resnet18", {}, (3, 224, 224), 1),
)


def int8_call(network: nn.Module, x: Tensor) -> Callable[[], object] | None:
    """The call of a network in onnxruntime with weights and activations of 8 bits; None where it is
    not installed."""
    if not (find_spec("onnxruntime") and find_spec("onnx") and find_spec("onnxscript")):
        return None
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    given = x.contiguous().numpy()

    class Examples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.left = [{name: given}] * 2

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "network.onnx", Path(folder) / "int8.onnx"
        torch.onnx.export(network, (x.contiguous(),), path, dynamo=True, verbose=False)
        name = onnxruntime.InferenceSession(path).get_inputs()[0].name
        quantize_static(path, small, Examples(name), per_channel=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(small, options)
    return lambda: session.run(None, {name: given})


def compared(what: str, full: nn.Module, x: Tensor, own: dict[str, Any], seconds: float) -> Row:
    """A row: torch in its faster memory format, onnxruntime, and `own` calls."""
    calls = both_formats(full, x) | own
    others = {"onnxruntime": onnx_call(full, x), "int8": int8_call(full, x)}
    calls |= {name: call for name, call in others.items() if call is not None}
    with using(1), torch.inference_mode():
        found = milliseconds(calls, seconds)
    torch_ms = min(ms for name, ms in found.items() if name.startswith("torch"))
    row: Row = {"what": what, "torch": torch_ms}
    row |= {name: found.get(name) for name in ("onnxruntime", "int8", "W", "B")}
    best = min(found[n] for n in ("onnxruntime", "int8") if n in found) if others else torch_ms
    return row | {"B times torch": torch_ms / found["B"], "B times the best": best / found["B"]}


def of_layer(inputs: int, outputs: int, side: int, examples: int, seconds: float) -> Row:
    full = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False).eval().requires_grad_(False)
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    binary = nn.Sequential(made_binary(layer, torch.rand(shape_of(layer))))
    x = torch.randn(examples, inputs, side, side)
    y = x.contiguous(memory_format=torch.channels_last)
    made = fast(binary, y).network
    what = f"conv {inputs} to {outputs} at {side}, batch {examples}"
    return compared(what, full, x, {"B": lambda: made(y)}, seconds)


def of_network(
    model: str, params: dict[str, Any], shape: tuple[int, ...], examples: int, seconds: float
) -> Row:
    subject = Subject(model, params, shape, 10)
    x, count = subject.inputs(examples), len(subject.layers)
    nets = {letter: subject.at(letter * count).network for letter in "WB"}
    own = {letter: lambda net=net: net(x) for letter, net in nets.items()}
    width = f" of width {params['width']}" if params else ""
    name = "cresnet20" if model == "cresnet" else model
    return compared(f"{name}{width}, batch {examples}", subject.full, x, own, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per row")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # onnxruntime's advice, for every network
    print(cpu_name())
    rows = [of_layer(*layer, args.seconds) for layer in LAYERS]
    rows += [of_network(*network, args.seconds) for network in NETWORKS]
    print(format_table(rows))
    write_csv(rows, csv_path("crossover", ["torch", "numba"]))


if __name__ == "__main__":
    main()
