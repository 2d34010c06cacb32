"""Compile the fused kernel for GPUs that are not there, and print the registers and spills of each variant."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gyrfalcon.backends import triton_kernels

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compiled(target, profile, **options):
    """Compile as the kernel is launched: four pointers and two sizes are multiples of 16."""
    kernel = triton_kernels.products
    types = 4 * ["*fp32"] + 4 * ["i32"] + ["fp32"] + 4 * ["constexpr"]
    constants = {
        "measure": triton_kernels.MEASURES["manhattan" if profile == "exponential" else "distance"],
        "profile": triton_kernels.PROFILES[profile],
        "TI": triton_kernels.TILE,
        "TJ": triton_kernels.SUMMED,
    }
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    source = ASTSource(kernel, dict(zip(kernel.arg_names, types, strict=True)), constants, aligned)
    options = {"num_warps": 4, "enable_fp_fusion": True, **options}
    return triton.compile(source, target=TARGETS[target], options=options)


def resources(target, code):
    """Return the registers of a thread, and what it spills: bytes of its stack, or registers."""
    if target.startswith("gfx"):
        counts = {name: int(n) for name, n in re.findall(r"\.(\w+_count): +(\d+)", code.asm["amdgcn"])}
        return counts["vgpr_count"] + counts["agpr_count"], counts["vgpr_spill_count"] + counts["sgpr_spill_count"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts = {name: int(n) for name, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", out)}
    return counts["REG"], counts["STACK"] + counts["LOCAL"]


def main():
    found = []
    cases = [(target, profile, profile, {}) for target in TARGETS for profile in triton_kernels.PROFILES]
    for target, name, profile, options in [*cases, ("sm_80", "starved", "gaussian", {"maxnreg": 32})]:
        registers, spills = resources(target, compiled(target, profile, **options))
        found.append({"target": target, "profile": name, "registers": registers, "spills": spills})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
