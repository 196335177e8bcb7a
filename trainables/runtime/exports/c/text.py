"""The files of a program in C: a header, the program, and a test with two examples."""

from __future__ import annotations

import re
from importlib.resources import files

from torch import Tensor

from bitfront.trainables.runtime.exports.c.program import Program, Value, number, placed
from bitfront.trainables.runtime.exports.description import Description

KERNELS = files(__package__) / "kernels.c"
MARK = "/* --- functions --- */"


def header(about: Description, program: Program, out: Value) -> str:
    """net.h: sizes, preprocessing, names of classes, and how the network is called."""
    _, floats = placed(program)
    inputs = _count(about)
    names = [f"  {quoted(name)}" for name in about.class_names]
    lines = [
        f"/* {plain(about.model)} for {plain(about.dataset)}, method {plain(about.method)}, plan",
        f"   {plain(about.plan)}. Written by bitfront deploy --c.",
        "",
        f"   {program.binary} weights of one bit; constants {program.weight_bytes} bytes; all",
        f"   buffers are static: {4 * floats} bytes of floats, {4 * program.bits} bytes of bits.",
        "   Nothing is allocated. Not reentrant: one call at a time. */",
        "#ifndef NET_H",
        "#define NET_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define NET_INPUTS {inputs}",
        f"#define NET_OUTPUTS {out.count}",
        f"#define NET_BUFFER_BYTES {4 * (floats + program.bits)}",
        f"#define NET_CONSTANT_BYTES {program.weight_bytes}",
        *(f"#define NET_{n} {s}" for n, s in zip(_axes(about), about.input_shape, strict=True)),
        "",
        "/* The input is (value - mean) / std per channel, values from 0 to 1. */",
        f"static const float net_mean_of_channels[] = {{{_floats(about.mean)}}};",
        f"static const float net_std_of_channels[] = {{{_floats(about.std)}}};",
        "",
        *(
            ["static const char *const net_classes[NET_OUTPUTS] = {", ",\n".join(names), "};", ""]
            if len(names) == out.count
            else []
        ),
        "/* From NET_INPUTS floats (channels, rows, columns) to NET_OUTPUTS floats. */",
        "void net_predict(const float *in, float *out);",
        "",
        "/* The output that is largest. */",
        "int net_class(const float *out);",
        *_preprocess_declared(about),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def source(about: Description, program: Program, out: Value) -> str:
    """net.c."""
    offsets, floats = placed(program)
    steps = [step.text for step in program.steps]
    body = "\n  ".join(steps)
    arrays = "\n\n".join(program.arrays)
    places = [
        f"float *const v{n} = net_floats + {offset};"
        for n, offset in enumerate(offsets)
        if re.search(rf"\bv{n}\b", body)
    ]
    declared = "\n  ".join(places)
    return f"""#include "net.h"

#include <math.h>

static float net_floats[{max(floats, 1)}];
{f"static uint32_t net_bits[{program.bits}];" if program.bits else ""}

{_kernels(body)}
{arrays}

void net_predict(const float *in, float *out) {{
  {declared}
  {body}
  for (int i = 0; i < NET_OUTPUTS; i++) out[i] = {out.name}[i];
}}

int net_class(const float *out) {{
  int best = 0;
  for (int i = 1; i < NET_OUTPUTS; i++)
    if (out[i] > out[best]) best = i;
  return best;
}}
{_preprocess(about)}"""


def test(x: Tensor, y: Tensor) -> str:
    """main.c: runs examples whose outputs torch has computed."""
    given, wanted = (", ".join(map(number, t.flatten().tolist())) for t in (x, y))
    return f"""/* Runs {len(x)} examples whose outputs torch computed:
   cc -std=c99 -O2 net.c main.c -lm && ./a.out */
#include <math.h>
#include <stdio.h>

#include "net.h"

static const float examples[] = {{{given}}};
static const float wanted[] = {{{wanted}}};

int main(void) {{
  float out[NET_OUTPUTS], largest = 0.0f;
  int others = 0;
  for (int n = 0; n < {len(x)}; n++) {{
    net_predict(examples + n * NET_INPUTS, out);
    for (int i = 0; i < NET_OUTPUTS; i++)
      largest = fmaxf(largest, fabsf(out[i] - wanted[n * NET_OUTPUTS + i]));
    others += net_class(out) != net_class(wanted + n * NET_OUTPUTS);
  }}
  printf("%d of {len(x)} classes differ, largest difference of an output %g\\n", others, largest);
  return others != 0;
}}
"""


# Reads examples from standard input and writes their outputs, all as raw floats.
PIPE = """#include <stdio.h>
#include "net.h"
int main(void) {
  static float in[NET_INPUTS], out[NET_OUTPUTS];
  while (fread(in, sizeof(float), NET_INPUTS, stdin) == NET_INPUTS) {
    net_predict(in, out);
    if (fwrite(out, sizeof(float), NET_OUTPUTS, stdout) != NET_OUTPUTS) return 1;
  }
  return 0;
}
"""


def _kernels(body: str) -> str:
    """The functions that are called, and what they call."""
    head, _, rest = KERNELS.read_text(encoding="utf-8").partition(MARK)
    functions: dict[str, str] = {}
    for text in re.split(r"\n(?=\n(?:/\*|static))", rest):
        found = re.search(r"static \w+ (net_\w+)\(", text)
        if found is None:
            continue
        if "WIDTH" in found[1]:
            for width in ("8", "16", "32"):
                functions[found[1].replace("WIDTH", width)] = text.replace("WIDTH", width)
        else:
            functions[found[1]] = text
    wanted = [name for name in functions if re.search(rf"\b{name}\(", body)]
    if any(name.startswith("net_binary") for name in wanted):
        wanted.append("net_ones")
    return head + "".join(functions[name] for name in functions if name in wanted)


def _preprocess_declared(about: Description) -> list[str]:
    if not about.image:
        return []
    return [
        "",
        "/* From bytes (rows, columns, channels), as cameras have them, to an input. */",
        "void net_preprocess(const uint8_t *image, float *in);",
    ]


def _preprocess(about: Description) -> str:
    if not about.image:
        return ""
    return """
void net_preprocess(const uint8_t *image, float *in) {
  for (int c = 0; c < NET_CHANNELS; c++)
    for (int p = 0; p < NET_HEIGHT * NET_WIDTH; p++)
      in[c * NET_HEIGHT * NET_WIDTH + p] =
          ((float)image[p * NET_CHANNELS + c] - 255.0f * net_mean_of_channels[c]) /
          (255.0f * net_std_of_channels[c]);
}
"""


def _axes(about: Description) -> tuple[str, ...]:
    if about.image:
        return ("CHANNELS", "HEIGHT", "WIDTH")
    return tuple(f"SIZE_{n}" for n in range(len(about.input_shape)))


def _count(about: Description) -> int:
    count = 1
    for size in about.input_shape:
        count *= size
    return count


def _floats(values: tuple[float, ...]) -> str:
    return ", ".join(map(number, values))


def plain(text: str) -> str:
    """A text for a comment, without what ends one."""
    return re.sub(r"[^\w .:=+-]", "_", text, flags=re.ASCII)[:200]


def quoted(text: str) -> str:
    """A text as a literal of C, whatever is in it."""
    kept = (chr(b) if chr(b).isalnum() or b in b" -_." else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(kept) + '"'
