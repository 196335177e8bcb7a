"""Every classifier of torchvision and a small one of every family of timm with an all-W and an
all-B plan: are binary inputs and outputs different for different images?

    python -m benchmarks.sweep                 # writes docs/results/networks.md; about an hour
    python -m benchmarks.sweep --only resnet   # networks whose name contains a text; writes nothing

Networks are random, images are 4 of random pixels, as small as the network takes them; nothing is
trained. What was measured is kept in benchmarks/results/networks.csv, and a run that is interrupted
continues there; `--anew` forgets it."""

from __future__ import annotations

import argparse
import csv
import gc
import time
from pathlib import Path
from typing import Any

from benchmarks.table import RESULTS, append_csv, format_table, write_csv

SIZES = (64, 96, 128, 224)
EXAMPLES, CLASSES = 4, 10
CSV = RESULTS / "networks.csv"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "networks.md"
# A small network of every family (module) of timm 1.0.
TIMM = """
    beitv2_base_patch16_224 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32
    convnext_atto_rms cpubone_nano crossvit_tiny_240 cs3darknet_focus_s csatv2 cspnext_tiny
    davit_tiny deepseek_vit_412m deit_tiny_patch16_224 densenet121 dla46x_c dpn48b
    ecaresnext26t_32x4d edgenext_xx_small efficientformer_l1 efficientformerv2_s0
    efficientvim_m1 efficientvit_b0 efficientvit_m0 ese_vovnet19b_slim_dw fasternet_t0
    fastvit_t8 focalnet_tiny_srf gcvit_xxtiny gemma4_vit_167m_enc ghostnetv3_050 gmlp_ti16_224
    halonet_h1 hardcorenas_b hgnetv2_b0 hiera_tiny_224 hrnet_w18_small iformer_s
    inception_next_atto inception_resnet_v2 inception_v3 inception_v4 lcnetv2_small
    legacy_seresnet18 legacy_xception levit_128s lowformer_b0 mambaout_femto maxvit_pico_rw_256
    mobilenetv3_small_050 mobilenetv5_base mobileone_s0 mobilevit_xxs mvitv2_tiny
    naflexvit_base_patch16_radio_v3 nasnetalarge nest_tiny nextvit_small nf_regnet_b0 pit_xs_224
    pnasnet5large poolformerv2_s12 pvt_v2_b0 qwen3_vit_306m rdnet_tiny regnetx_002
    repghostnet_050 repvit_m1 res2net50_14w_8s resnest14d resnetv2_50x1_bit rexnet_100
    sam2_hiera_tiny samvit_base_patch16_224 selecsls42 sequencer2d_s shvit_s1 skresnet18
    starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224 swinv2_cr_tiny_224
    swinv2_tiny_window16_256 tiny_vit_5m_224 tinynet_e tnt_s_legacy_patch16_224 tresnet_m
    twins_svt_small vgg11 visformer_tiny vit_srelpos_small_patch16_224 vit_tiny_patch16_224
    vit_tiny_patch16_dinov3_qkvb vit_tiny_r_s16_p8_224 vitamin_small_224 volo_d1_224 xception41p
    xcit_nano_12_p8_224
"""

Row = dict[str, Any]

COLUMNS = (
    *("network", "pixels", "M parameters", "planned", "all-W", "+1 min", "+1 max", "spread min"),
    *(
        "degenerate",
        "fixed",
        "outputs differ",
        "degenerate, keep",
        "outputs differ, keep",
        "seconds",
    ),
    "refused",
)


def torchvision_names() -> list[str]:
    """Every classifier of torchvision."""
    from torchvision import models

    return [f"torchvision/{name}" for name in models.list_models(module=models)]


def timm_names() -> list[str]:
    """A small network of every family of timm."""
    return [f"timm/{name}" for name in TIMM.split()]


def examined(name: str) -> Row:
    """What is measured of one network; `refused` where it takes no plan."""
    started = time.perf_counter()
    row: Row = {"network": name}
    try:
        row |= _measured(name)
    except Exception as error:  # networks of others fail in their own ways
        first = str(error).strip().splitlines()
        row["refused"] = first[0] if first else type(error).__name__
    row["seconds"] = round(time.perf_counter() - started, 1)
    gc.collect()
    return row


def _measured(name: str) -> Row:
    import torch
    from torch import nn

    from bitfront.trainables.layers.binary import apply_plan
    from bitfront.trainables.layers.responses import respond
    from bitfront.trainables.methods import build_method
    from bitfront.trainables.models import build_model
    from bitfront.trainables.plan import plan_layers

    size = _size(name)
    shape = (3, size, size)
    torch.manual_seed(0)
    model = build_model(name, _params(name, size), shape, CLASSES)
    layers = plan_layers(model)
    row: Row = {
        "pixels": size,
        "M parameters": round(sum(p.numel() for p in model.parameters()) / 1e6, 1),
        "planned": len(layers),
    }
    method = build_method("bnn", {"scale": "channel"})
    made = apply_plan(model, layers, "B" * len(layers), method, activations="norm")
    x = torch.randn(EXAMPLES, *shape)
    all_b = respond(model, made, x)
    if all_b.layers:
        row["+1 min"] = round(min(layer.ones for layer in all_b.layers), 3)
        row["+1 max"] = round(max(layer.ones for layer in all_b.layers), 3)
        row["spread min"] = round(min(layer.spread for layer in all_b.layers), 3)
    row["outputs differ"] = _word(all_b)
    row["degenerate"] = len(all_b.degenerate)
    row["fixed"] = sum(layer.fixed for layer in all_b.layers)
    for layer in made:
        holder: Any = layer.module
        holder.input_quantizer = holder.input_quantizer.quantizer
    kept = respond(model, made, x)
    row["degenerate, keep"] = len(kept.degenerate)
    row["outputs differ, keep"] = _word(kept)
    for layer in made:
        layer.module.input_quantizer = nn.Identity()
    row["all-W"] = _word(respond(model, made, x))
    return row


def _word(responses: Any) -> str:
    if not responses.finite:
        return "not finite"
    if responses.hidden:
        return "starts at 0"
    return "yes" if responses.differ else "no"


def _params(name: str, size: int) -> Row:
    return {"image_size": size}


def _size(name: str) -> int:
    """The smallest size of images that the network takes with a plan; the first reason where it
    takes none."""
    from bitfront.trainables.cost import cost_table

    reasons: list[Exception] = []
    for size in (*SIZES, *_declared(name)):
        try:
            if cost_table(name, _params(name, size), (3, size, size), CLASSES).plan_layers:
                return size
            raise ValueError("it has no layer that a plan could decide")
        except Exception as error:  # of the network: too small an image, most often
            reasons.append(error)
    raise reasons[-1]


def _declared(name: str) -> list[int]:
    library, _, rest = name.partition("/")
    if library != "timm":
        return []
    import timm

    declared = timm.get_pretrained_cfg(rest)
    return [] if declared is None else [declared.input_size[-1]]


def page(rows: list[Row]) -> str:
    """docs/results/networks.md."""
    fine = [r for r in rows if not r.get("refused")]
    bad = [r for r in rows if r.get("refused")]
    head = COLUMNS[:-1]
    good = [
        r
        for r in fine
        if r["outputs differ"] in ("yes", "starts at 0") and not int(r["degenerate"])
    ]
    zero = [r for r in fine if r["outputs differ"] == "starts at 0"]
    untried = [r["network"] for r in fine if r["outputs differ"] == "all 0"]
    dead = [r for r in fine if r["outputs differ, keep"] == "no"]
    some = [r for r in fine if int(r["degenerate, keep"])]
    lines = [
        "# Networks of torchvision and timm with binary layers",
        "",
        "Written by `python -m benchmarks.sweep`: every classifier of torchvision, and a small",
        f"network of every family of timm. Random weights, {EXAMPLES} random images of as few",
        "pixels as the network takes, batch norms with the statistics of these images, method",
        "`bnn` with a scale per channel, `binarize: body`. Columns: `planned` layers that a plan",
        "decides;",
        "`all-W`: whether outputs differ with binary weights alone; `+1`: the least and the",
        "greatest share of +1 among the binary inputs of an all-B network with",
        "`task.activations: norm`, which networks of libraries have unless told otherwise;",
        "`spread`: the least share of signs that differ between images; `degenerate`: layers whose",
        "signs are the same for all images (a spread below 0.01) although their inputs are not;",
        "`fixed`: layers whose input is the same for all images before its sign, such as tables of",
        "positions and blocks behind a scale that is 0 at first; `keep`: the same network without",
        "a treatment.",
        "",
        f"**{len(fine)} of {len(rows)} networks take a plan ({_libraries(fine)}). With `norm`",
        f"{len(good)} of them respond to the image in every binary layer and at the output",
        f"({len(zero)} of these have a classifier that starts at 0, and were tried with other",
        f"weights in it); with `keep` {len(some)} have layers that do not, and",
        f"{len(dead)} give the same output for every image.**",
        *(f"\nNot tried so: {n}, whose outputs are 0 at first." for n in untried),
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(str(r.get(c, "")) for c in head) + " |" for r in fine),
        "",
        "## Refused, and why",
        "",
        "| network | reason |",
        "|---|---|",
        *(f"| {r['network']} | {str(r['refused']).replace('|', '/')} |" for r in bad),
    ]
    return "\n".join(lines) + "\n"


def _libraries(rows: list[Row]) -> str:
    counts = {k: sum(r["network"].startswith(k) for r in rows) for k in ("torchvision", "timm")}
    return ", ".join(f"{count} of {library}" for library, count in counts.items())


def known() -> list[Row]:
    """The rows that a former run measured."""
    if not CSV.exists():
        return []
    with CSV.open(newline="", encoding="utf-8") as file:
        return [dict(row) for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="networks whose name contains this")
    parser.add_argument("--anew", action="store_true", help="forget what was measured")
    parser.add_argument("--again", action="store_true", help="try the refused ones again")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    args = parser.parse_args()
    if args.anew:
        CSV.unlink(missing_ok=True)
    if args.again:
        write_csv([row for row in known() if not row["refused"]], CSV)
    if not args.page:
        done = {row["network"] for row in known()}
        names = [*torchvision_names(), *timm_names()]
        for name in names:
            if args.only is not None and args.only in name:
                print(format_table([examined(name)]), flush=True)
            elif args.only is None and name not in done:
                row: Row = dict.fromkeys(COLUMNS, "") | examined(name)
                append_csv(row, CSV)
                print({k: v for k, v in row.items() if v != ""}, flush=True)
    if args.only is None:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(known()), encoding="utf-8")


if __name__ == "__main__":
    main()
