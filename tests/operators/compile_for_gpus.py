"""Compile the fused kernels for GPUs that are not there, and print what each variant takes.

    python tests/operators/compile_for_gpus.py [--all] [--write]

That is registers and spills of a thread and, for NVIDIA's, the share of a multiprocessor's threads that these registers
leave room for, and instructions for an entry of K with 18 features that is made and multiplied with one column. `--all`
compiles every variant, otherwise those that take the most; `--write` records them in `compiled_kernels.json`, which a
test compares.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gyrfalcon.backends import triton_kernels, triton_tiles
from gyrfalcon.kernels import Gaussian

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
WITH_DOTS = ("sm_80", "sm_90")
OF_INNER_PRODUCTS = ["linear", "polynomial", "sigmoid"]
SMOOTH = ["gaussian", "matern_3", "matern_5", "rational_quadratic", "rational_quadratic_large"]
IN_FLOAT32 = ["rational_quadratic_large"]  # alone
MOST_REGISTERS = ["gaussian", "rational_quadratic", "sigmoid", "arc_cosine_1"]  # of profiles in float64
REGISTERS, THREADS = 65_536, {"sm_80": 2048, "sm_89": 1536, "sm_90": 2048, "sm_120": 1536}  # of a multiprocessor
RECORDED = Path(__file__).with_name("compiled_kernels.json")
BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FEATURES, WIDTH = 18, 64  # and what these take as numbers of TF32


def variants(every):
    """Yield target, method, profile, precision, and whether there is one column.

    Every profile is compiled for sm_80 in float32, and in float64 those that take the most registers, or `every` one;
    for other targets what matters most, and what takes the most registers.
    """
    for profile in triton_kernels.PROFILES:
        yield "sm_80", method_of(profile), profile, "fp32", True
    for profile in triton_kernels.PROFILES if every else MOST_REGISTERS:
        if profile in IN_FLOAT32:
            continue
        yield "sm_80", method_of(profile), profile, "fp64", True
    yield "sm_80", "squares", "gaussian", "fp32", True
    for target in TARGETS:
        if target != "sm_80":
            yield target, "inner", "gaussian", "fp32", True
            yield target, "sizes", "exponential", "fp32", True
            for profile in (*SMOOTH[1:], "sigmoid") if every else ("rational_quadratic",):
                yield target, "inner", profile, "fp32", True
            yield target, "squares", "arc_cosine_1", "fp64", True
        yield target, "inner", "gaussian", "fp32", False
    for target in WITH_DOTS:
        for profile in (*SMOOTH, "sigmoid") if target == "sm_80" or every else ("gaussian", "rational_quadratic"):
            yield target, "dots", profile, "fp32", True
        yield target, "dots", "gaussian", "fp32", False
        yield target, "long dots", "gaussian", "fp32", True


def method_of(profile):
    """Return how entries are made without tensor cores."""
    if profile in (*SMOOTH, *OF_INNER_PRODUCTS):
        return "inner"
    return "sizes" if profile == "exponential" else "squares"


def compiled(target, method, profile, dtype, single, **options):
    """Compile as the kernel is launched: pointers and two sizes are multiples of 16."""
    dots = method.endswith("dots")
    kernel = triton_kernels.products_by_dots if dots else triton_kernels.products
    TI, TJ, warps = tile_of(method, dtype)
    constants = {"profile": triton_kernels.PROFILES[profile], "SINGLE": single, "TI": TI, "TJ": TJ}
    constants["PTX"] = not target.startswith("gfx") and dtype == "fp32"
    constants |= {"C": WIDTH if method == "dots" else 32, "WHOLE": method == "dots"} if dots else {"measure": method}
    if not dots:
        constants["C"] = triton_kernels.FEATURES
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else "i32" for name in names}
    types |= dict.fromkeys(names[:7], "*" + dtype)
    aligned = [*range(9), *([10] if dots else [])]
    source = ASTSource(kernel, types, constants, {(i,): [["tt.divisibility", 16]] for i in aligned})
    options = {"num_warps": warps, "enable_fp_fusion": True, **options}
    return triton.compile(source, target=TARGETS[target], options=options)


def tile_of(method, dtype):
    return triton_kernels.TILES["dots" if method.endswith("dots") else {"fp32": "float32", "fp64": "float64"}[dtype]]


def resources(target, code):
    """Return the registers of a thread, what it spills (bytes of its stack, or registers), and the instructions."""
    if target.startswith("gfx"):
        counts = {name: int(n) for name, n in re.findall(r"\.(\w+_count): +(\d+)", code.asm["amdgcn"])}
        # scalar registers are spilled to lanes of vector registers, not to memory
        return counts["vgpr_count"] + counts["agpr_count"], counts["vgpr_spill_count"], None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.asm["cubin"])
        file.flush()
        usage, text = (
            subprocess.run([BINARIES / command[0], *command[1:], file.name], check=True, capture_output=True, text=True)
            for command in (["cuobjdump", "--dump-resource-usage"], ["nvdisasm", "-c"])
        )
    counts = {name: int(n) for name, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage.stdout)}
    return counts["REG"], counts["STACK"] + counts["LOCAL"], text.stdout


def loops(text):
    """Return the first and last instruction of each loop: of each branch back."""
    labels, branches, n = {}, [], 0
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\w+):", line):
            labels[label[1]] = n
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            if (target := re.search(r"BRA.*?(\.L_x_\w+)", instruction[1])) and labels.get(target[1], n) < n:
                branches.append((labels[target[1]], n + 1))
            n += 1
    return branches


def instructions(text, method, dtype):
    """Return instructions for an entry: those of the loop over tiles, with the loop over features as often as it runs.

    None where loops are not of this kind, as where the compiler has unrolled one, or a profile has one of its own.
    """
    TI, TJ, warps = tile_of(method, dtype)
    found = sorted(loops(text), key=lambda loop: loop[0] - loop[1])
    if len(found) > (1 if method == "dots" else 2) or not found:
        return None
    count = found[0][1] - found[0][0]
    for inner in found[1:]:
        count += (FEATURES // triton_kernels.FEATURES - 1) * (inner[1] - inner[0])
    return round(count * 32 * warps / (TI * TJ), 1)


def occupancy(target, method, dtype, registers):
    """Return the share of the threads of a multiprocessor that have registers; they are given out by eights."""
    _, _, warps = tile_of(method, dtype)
    programs = REGISTERS // (-(-registers // 8) * 8 * 32 * warps)
    return round(min(1.0, programs * 32 * warps / THREADS[target]), 2)


def measured(variant):
    """Compile a variant, and return what it takes."""
    target, method, profile, dtype, single = variant
    registers, spills, text = resources(target, compiled(*variant))
    one = {"target": target, "method": method, "profile": profile, "dtype": dtype, "columns": 1 if single else "k"}
    if text is not None:
        one["occupancy"] = occupancy(target, method, dtype, registers)
        if single and method != "long dots" and profile != "polynomial":
            one["instructions"] = instructions(text, method, dtype)
    return {**one, "registers": registers, "spills": spills}


class NoGpu:
    """A driver of a GPU that is not there: it loads every binary, and writes down launches instead of running them."""

    def __init__(self, target, most_shared):
        self.target, self.most_shared, self.launched, self.utils = target, most_shared, [], self

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.target.arch

    def get_current_stream(self, device):
        return 0

    def get_device_properties(self, device):
        return {"max_shared_mem": self.most_shared}

    def load_binary(self, name, binary, shared, device):
        assert binary.startswith(b"\x7fELF")
        return None, None, 0, 0, 1024

    def launcher_cls(self, source, metadata):
        def launch(*arguments):
            grid, given = arguments[:3], arguments[9:]
            assert len(given) == len(source.fn.arg_names)
            one = {"name": metadata.name, "warps": metadata.num_warps, "grid": list(grid), "shared": metadata.shared}
            self.launched.append(one)

        return launch


MOST_SHARED = {"sm_80": 166_912, "sm_89": 101_376}  # bytes of a program


def launches():
    """Make products as an operator does, by Triton's own path from the call to the launch of a binary."""
    found = []
    for target, method in (("sm_80", "dots"), ("sm_89", "inner")):
        gpu = NoGpu(TARGETS[target], MOST_SHARED[target])
        triton.runtime.driver.set_active(gpu)
        Z = np.random.default_rng(0).standard_normal((300, FEATURES)).astype(np.float32)
        make = triton_tiles.MakeFusedTile(Gaussian(4.0), Z, torch.device("cpu"), method)
        make._ptx = True
        tile = make(torch.from_numpy(np.repeat(Z, 2, axis=0)))
        for columns in (1, 2):
            tile @ torch.ones((len(Z), columns))
            tile.chunked_products(torch.ones((2 * len(Z), columns)))
        found += [{"target": target, "method": "launched", **one} for one in gpu.launched]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="compile every variant")
    parser.add_argument("--write", action="store_true", help="record them in compiled_kernels.json, with --all")
    arguments = parser.parse_args()
    found = [measured(variant) for variant in variants(arguments.all or arguments.write)]
    if arguments.write:
        RECORDED.write_text("[\n" + ",\n".join(f" {json.dumps(one)}" for one in found) + "\n]\n")
        return
    _, spills, _ = resources("sm_80", compiled("sm_80", "inner", "gaussian", "fp32", True, maxnreg=32))
    found.append({"target": "sm_80", "method": "starved", "spills": spills})
    found += launches()
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
