"""How fast binary layers and networks run on packed bits, against torch in full precision and,
where they are installed, onnxruntime and OpenVINO; and how many random layers give the bits of
torch.

    python -m benchmarks.inference                 # layers and networks, one and two threads
    python -m benchmarks.inference --exact 1000    # random layers against torch, on every kernel
    python -m benchmarks.inference --zoo           # every model, all layers B, against torch
    NUMBA_CPU_NAME=generic python -m benchmarks.inference --exact 1000  # as on a CPU without AVX

Calls are measured side by side in rounds, batch 1, packing included; torch with the faster of its
two memory formats. One thread: medians of rounds of 5 ms by the clock of the process, which other
programs disturb little. Two threads: by the clock of the wall, which they disturb much: the time
that a quarter of the calls stay below, in rounds of 2 ms; run it where nothing else runs."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import MODELS
from bitfront.trainables.runtime.chains import PackedLayer
from bitfront.trainables.runtime.exports import onnx_graph
from bitfront.trainables.runtime.exports.description import INPUT
from bitfront.trainables.runtime.exports.form import traced
from bitfront.trainables.runtime.layers import misfit
from bitfront.trainables.runtime.machine import Kernel, cpu_name, has_lookup
from bitfront.trainables.runtime.network import fast
from bitfront.trainables.runtime.threads import using
from bitfront.trainables.runtime.timing import milliseconds
from testbed.binary_nets import made_binary, planned_network

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[int, float]]] = {
    "conv 256 to 256, 3x3 at 14": (
        lambda: nn.Conv2d(256, 256, 3, padding=1, bias=False), (1, 256, 14, 14), {1: 8, 2: 6}
    ),
    "conv 64 to 64, 3x3 at 56": (
        lambda: nn.Conv2d(64, 64, 3, padding=1, bias=False), (1, 64, 56, 56), {1: 6, 2: 5}
    ),
    "linear 768 to 3072, 197 tokens": (
        lambda: nn.Linear(768, 3072, bias=False), (1, 197, 768), {1: 8, 2: 7}
    ),
}  # fmt: skip
NETWORKS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], dict[str, float]]] = {
    "resnet18 at 224": ("resnet18", {}, (3, 224, 224), {"torch": 4.5, "onnxruntime": 3.5}),
    "cresnet20 of width 64": (
        "cresnet", {"depth": 20, "width": 64}, (3, 32, 32), {"torch": 6, "onnxruntime": 4}
    ),
    "cresnet20": ("cresnet20", {}, (3, 32, 32), {"torch": 2.5}),
}  # fmt: skip


# Other runtimes, of whole networks: in full precision, and the file of `deploy --openvino`.
RIVALS = ("onnxruntime", "openvino", "openvino, B")
# Seconds that calls of the same kind follow each other.
BURST = 2e-3


def both_formats(module: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    """The calls of a module in torch, in each memory format that its input has."""
    calls: dict[str, Callable[[], object]] = {"torch": lambda: module(x)}
    if x.dim() == 4:
        import copy

        last = copy.deepcopy(module).to(memory_format=torch.channels_last)
        y = x.contiguous(memory_format=torch.channels_last)
        calls["torch, channels last"] = lambda: last(y)
    return calls


def quarter(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The milliseconds that a quarter of the calls of each kind stay below. The first of a burst,
    whose threads may sleep and whose data are elsewhere, is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            call()
            before = time.perf_counter()
            stop = before + BURST
            while before < stop:
                call()
                now = time.perf_counter()
                times[name].append(1000 * (now - before))
                before = now
    return {name: sorted(values)[len(values) // 4] for name, values in times.items()}


def measured(
    name: str, calls: dict[str, Callable[[], object]], threads: int, seconds: float
) -> Row:
    with using(threads), torch.inference_mode():
        found = milliseconds(calls, seconds) if threads == 1 else quarter(calls, seconds)
    full = min(value for key, value in found.items() if key.startswith("torch"))
    row: Row = {"what": name, "threads": threads, "torch": full}
    row |= {name: found[name] for name in RIVALS if name in found}
    return row | {"packed": found["packed"], "times torch": full / found["packed"]}


def layers(threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    rows, bars = [], []
    for name, (make, shape, least) in LAYERS.items():
        full, x = make().eval(), torch.randn(shape)
        outputs = shape_of(make())
        run = PackedLayer(made_binary(make(), torch.rand(outputs)))
        y = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
        calls = both_formats(full, x) | {"packed": lambda run=run, y=y: run(y)}
        rows.append(measured(name, calls, threads, seconds))
        what = f"{name}, {threads} thread{'s' * (threads > 1)}, times torch"
        bars.append(bar(what, float(rows[-1]["times torch"] or 0), at_least=least[threads]))
    return rows, bars


def shape_of(layer: nn.Module) -> int:
    weight: Any = layer.weight
    return len(weight)


def onnx_call(network: nn.Module, x: Tensor) -> Callable[[], object] | None:
    """The call of a network in onnxruntime; None where it or the exporter is not installed."""
    if not (find_spec("onnxruntime") and find_spec("onnx") and find_spec("onnxscript")):
        return None
    given = {INPUT: x.contiguous().numpy()}
    with using(1):
        session = onnx_graph.session_of(onnx_of(network, x).SerializeToString())
    return lambda: session.run(None, given)


def openvino_call(network: nn.Module, x: Tensor) -> Callable[[], object] | None:
    """The same in OpenVINO, binary layers as its BinaryConvolution."""
    if not (find_spec("openvino") and find_spec("onnx") and find_spec("onnxscript")):
        return None
    from bitfront.trainables.runtime.exports import openvino_graph

    model = openvino_graph.openvino_of(onnx_of(network, x), tuple(x.shape[1:]))
    openvino_graph.binary(model)
    with using(1):
        request = openvino_graph.compiled(model).create_infer_request()
    given = x.contiguous().numpy()
    return lambda: request.infer(given)


def onnx_of(network: nn.Module, x: Tensor) -> Any:
    """A network as a graph of ONNX, for inputs of this size."""
    return onnx_graph.graph_of(traced(network, x.contiguous(), any_batch=False))


def networks(threads: int, seconds: float) -> tuple[list[Row], list[str]]:
    rows, bars = [], []
    for name, (model, params, shape, least) in NETWORKS.items():
        full, network = planned_network(model, params, shape, "B")
        x = torch.randn(1, *shape).contiguous(memory_format=torch.channels_last)
        made = fast(network, x)
        if not made.fused:
            sys.exit(f"{name}: {made}")
        calls = both_formats(full, x) | {"packed": lambda made=made, x=x: made.network(x)}
        if threads == 1:  # Their threads would keep those of the others waiting.
            others = (onnx_call(full, x), openvino_call(full, x), openvino_call(network, x))
            calls |= {k: v for k, v in zip(RIVALS, others, strict=True) if v is not None}
        row = measured(name, calls, threads, seconds)
        rows.append(row)
        if threads == 1:
            for rival, times in least.items():
                if row.get(rival) is not None:
                    faster = float(row[rival] or 0) / float(row["packed"] or 1)
                    bars.append(bar(f"{name}, times {rival}", faster, at_least=times))
    return rows, bars


def random_input(draw: random.Random, shape: list[int]) -> Tensor:
    """Numbers, many of them zeros or no finite numbers at all, in any layout."""
    x = torch.randn(shape)
    for value in (0.0, -0.0, torch.inf, -torch.inf, torch.nan, -torch.nan):
        if draw.random() < 0.2:
            x[torch.rand_like(x) < 0.1] = value
    layout = draw.choice(["plain", "last", "transposed", "every second", "one for all"])
    if layout == "last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if layout == "transposed" and x.dim() > 1:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "every second":
        return x.repeat_interleave(2, -1)[..., ::2]
    return x[:1].expand(x.shape) if layout == "one for all" else x


def random_layer(draw: random.Random) -> tuple[nn.Module, Tensor]:
    """A binary layer, and an input for it."""
    layer: nn.Module
    kind = draw.random()
    if kind < 0.2:
        inputs = draw.randrange(8, 300)
        layer = nn.Linear(inputs, draw.randrange(1, 200), draw.random() < 0.5)
        x = random_input(draw, [*(draw.randrange(1, 9) for _ in range(draw.randrange(3))), inputs])
    else:
        dimensions = 1 if kind < 0.3 else 2
        groups = draw.choice([1, 1, 1, 2, 3, 4])
        inputs = groups * draw.choice([draw.randrange(8, 130), 32, 64])
        outputs = groups * draw.choice([draw.randrange(1, 140), 16, 64])

        def each(*values: int) -> tuple[int, ...]:
            return tuple(draw.randrange(*values) for _ in range(dimensions))

        kernel, dilation = each(1, 6), each(1, 4)
        rest = (each(4), dilation, groups, draw.random() < 0.5)
        convolution: Any = nn.Conv1d if dimensions == 1 else nn.Conv2d
        layer = convolution(inputs, outputs, kernel, each(1, 4), *rest)
        size = [d * (k - 1) + draw.randrange(1, 12) for k, d in zip(kernel, dilation, strict=True)]
        x = random_input(draw, [draw.choice([1, 2, 3, 17]), inputs, *size])
    scale = draw.choice([None, torch.randn(1), torch.randn(shape_of(layer))])
    treatment = draw.choice(["keep", "norm", "shift"])
    made_binary(layer, scale, draw.random() < 0.5, treatment)
    # A batch norm does not take an image without a batch.
    single = treatment != "norm" and len(x) == 1 and draw.random() < 0.5
    return layer, x[0] if single and not isinstance(layer, nn.Linear) else x


def exact(count: int, seed: int) -> dict[Kernel, int]:
    """By kernel, how many of `count` random layers give the bits of torch, on one thread and on
    two."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    same = {kernel: 0 for kernel in Kernel if kernel is not Kernel.LOOKUP or has_lookup()}
    for _ in range(count):
        layer, x = random_layer(draw)
        if misfit(layer) is not None:
            raise AssertionError(misfit(layer))
        with torch.inference_mode():
            wanted = layer(x)
            for kernel in same:
                made = PackedLayer(layer, kernel)
                found = []
                for threads in (1, 2):
                    with using(threads):
                        found.append(made(x))
                # Zeros of either sign are different bits.
                bits = [y.contiguous().view(torch.int32) for y in (wanted, *found)]
                same[kernel] += all(torch.equal(bits[0], each) for each in bits[1:])
    return same


# Of models that take other inputs than small images.
SHAPES = {"mlp": (64,), "resnet18": (3, 64, 64), "resnet50": (3, 64, 64)} | dict.fromkeys(
    ("deit-b", "deit-s", "deit-t", "nest-t", "swin-t", "vit-b16"), (3, 224, 224)
)


def zoo(pattern: str, seed: int) -> Iterator[Row]:
    """Every model of such a name, all layers B: how much of it runs on kernels, and whether other
    batches than those it was tried with give the outputs of torch too."""
    torch.manual_seed(seed)
    for name in MODELS.names(pattern):
        shape = SHAPES.get(name, (3, 32, 32))
        try:
            _, network = planned_network(name, {}, shape, "B", scale="channel")
        except (UserError, RuntimeError, TypeError, ValueError) as error:
            yield {"model": name, "runtime": f"not built: {str(error)[:60]}", "equal": None}
            continue
        made = fast(network.requires_grad_(False), torch.randn(2, *shape))
        with torch.inference_mode():
            xs = [torch.randn(batch, *shape) for batch in (1, 3)]
            equal = all(torch.equal(made.network(x), network(x)) for x in xs)
        yield {"model": name, "runtime": str(made), "equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=4.0, help="per layer and network")
    parser.add_argument("--exact", type=int, metavar="N", help="random layers, instead of times")
    parser.add_argument("--zoo", nargs="?", const="*", metavar="PATTERN", help="models, likewise")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.exact:
        for kernel, same in exact(args.exact, args.seed).items():
            what = f"of {args.exact} random layers, equal to torch on {kernel}"
            print(bar(what, same, at_least=args.exact))
        return
    if args.zoo:
        for row in zoo(args.zoo, args.seed):
            print(*(str(value) for value in row.values()), sep=", ", flush=True)
        return
    print(cpu_name())
    rows, bars = [], []
    for threads in args.threads:
        for measure in (layers, networks):
            more, reached = measure(threads, args.seconds)
            rows += more
            bars += reached
    rows = [{key: row.get(key) for key in max(rows, key=len)} for row in rows]
    print(format_table(rows))
    print(*bars, sep="\n")
    write_csv(rows, csv_path("inference", ["torch", "numba"]))


if __name__ == "__main__":
    main()
