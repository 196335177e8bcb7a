"""Claims about networks in C: what is compiled computes what torch does, within the memory that the
header states, and what has no form in C is refused by the name of its layer."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.no_data import input_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.c import compiler as compilers
from bitfront.trainables.runtime.exports.c import writing
from bitfront.trainables.runtime.exports.c.compiler import compiler
from bitfront.trainables.runtime.exports.c.text import plain, quoted
from bitfront.trainables.runtime.exports.deployment import deploy
from bitfront.trainables.runtime.exports.description import describe
from bitfront.trainables.runtime.exports.examples import random_examples
from bitfront.trainables.task import Task, TrialSpec
from testbed.binary_nets import made_binary

needs_compiler = pytest.mark.skipif(
    compiler() is None, reason="no C compiler: neither cc, gcc nor clang, nor ziglang of PyPI"
)

needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
ZIG = (sys.executable, "-m", "ziglang", "cc")
# Options for which other machines it is compiled: the first is a microcontroller with 32 bits.
MACHINES = {
    "Cortex-M4": ["-target", "thumb-linux-musleabihf", "-mcpu=cortex_m4"],
    "Cortex-M0+": ["-target", "thumb-linux-musleabi", "-mcpu=cortex_m0plus"],
    "aarch64": ["-target", "aarch64-linux-musl"],
    "riscv32": ["-target", "riscv32-linux-musl"],
    "wasm": ["-target", "wasm32-wasi"],
}


def in_c(network, shape, folder, classes=4):
    """The network, compared with torch on seven random inputs."""
    task = Task.model_validate({"dataset": input_name(shape, classes), "model": {"name": "mlp"}})
    spec = TrialSpec(task=task, method="bnn", plan="F")
    examples = random_examples(DATASETS.get(task.dataset), 7)
    network = network.requires_grad_(False).eval()
    (made,) = deploy(network, describe(spec, {}), {"c": folder / "net-c"}, examples)
    return made


@needs_compiler
@pytest.mark.parametrize("name", ["levels", "pruned", "wide", "vit"])
def test_a_compiled_network_computes_what_torch_does(deployed, name):
    made = deployed(name, "c")
    assert made.examples == 8
    assert made.difference < 1e-3


@needs_compiler
def test_the_test_that_is_written_runs_as_it_says(deployed, tmp_path):
    folder = deployed("levels", "c").path
    line = [*compiler(), "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    files = [str(folder / "net.c"), str(folder / "main.c")]
    done = subprocess.run([*line, *files, "-lm", "-o", str(tmp_path / "net")], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    ran = subprocess.run([str(tmp_path / "net")], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout[:24]) == (0, "0 of 2 classes differ, l")


@needs_zig
@pytest.mark.timeout(1200)  # what it brings of C is compiled once per user
def test_where_no_other_compiler_is_that_of_ziglang_is_taken(
    deployed, packed_file, tmp_path, monkeypatch
):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert compiler.__wrapped__() == ZIG
    monkeypatch.setattr(compilers, "compiler", lambda: ZIG)
    program = writing.compiled(deployed("levels", "c").path, tmp_path)
    network, _, _ = packed.load(packed_file("levels"))
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        assert float((writing.run(program, x) - network(x)).abs().max()) < 1e-3


@needs_zig
@pytest.mark.parametrize("machine", MACHINES)
def test_it_is_c_for_other_machines_too(deployed, tmp_path, machine):
    """Compiled, neither linked nor run."""
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    source, made = deployed("levels", "c").path / "net.c", tmp_path / "net.o"
    line = [*ZIG, *MACHINES[machine], *strict, "-c", str(source), "-o", str(made)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert made.stat().st_size > 0


def test_the_header_says_how_much_memory_there_is_and_nothing_is_allocated(deployed):
    folder = deployed("levels", "c").path
    text, header = (folder / "net.c").read_text(), (folder / "net.h").read_text()
    static = re.findall(r"static (?:float|uint32_t) net_\w+\[(\d+)\];", text)
    stated = re.search(r"NET_BUFFER_BYTES (\d+)", header)
    assert 4 * sum(map(int, static)) == int(stated[1])
    assert not re.search(r"malloc|alloca|free\(", text)
    assert set(re.findall(r"#include <(.+)>", text + header)) == {"math.h", "stdint.h"}


class Many(nn.Module):
    """Layers and operators that networks of one's own have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, (3, 5), stride=(1, 2), padding="valid", bias=True)
        self.norm = nn.BatchNorm2d(16)
        self.grouped = made_binary(nn.Conv2d(16, 32, 3, padding=2, dilation=2, groups=2))
        self.mixed = made_binary(nn.Conv2d(32, 20, 1, bias=True), torch.rand(20), shifted=True)
        self.channel_norm = nn.InstanceNorm2d(32, affine=True)
        self.group_norm = nn.GroupNorm(4, 20)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.row = made_binary(nn.Conv1d(20, 40, 3, padding=1), torch.rand(40))
        self.layer_norm = nn.LayerNorm(40)
        self.last = nn.Linear(80, 4)
        for norm in (self.channel_norm, self.group_norm, self.layer_norm):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)

    def forward(self, x):
        x = nn.functional.gelu(self.norm(self.first(x)))
        x = self.mixed(self.channel_norm(self.grouped(x)).sigmoid() - 0.5)
        x = self.group_norm(x)
        x = self.pool(nn.functional.pad(x, (1, 0, 2, 1), value=0.5))
        x = self.row(x.flatten(2))
        x = self.layer_norm(x.transpose(1, 2))
        x = nn.functional.scaled_dot_product_attention(x, x.softmax(-1), x)
        a, b = x.chunk(2, dim=1)
        return self.last(torch.cat([a.mean(1), b[:, ::2].mean(1)], 1))


@needs_compiler
def test_a_network_of_ones_own_that_is_not_square_runs(tmp_path):
    torch.manual_seed(0)
    made = in_c(Many(), (3, 9, 14), tmp_path)
    assert made.difference < 1e-5


def test_what_has_no_form_in_c_is_refused_by_the_name_of_its_layer(tmp_path):
    network = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UserError, match=r"^--c: 0: aten.conv_transpose2d.input has no form in C"):
        in_c(network, (3, 8, 8), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_of_others_cannot_end_a_comment_or_a_string():
    assert "*/" not in plain("x */ int main")
    assert quoted('a"b\\c\n') == '"a\\042b\\134c\\012"'
