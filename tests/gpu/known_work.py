"""What `opcost measure` says of programs whose work is known.

    PYTHONPATH=scripts python -m tests.gpu.known_work campaign/known_work.json

Each program starts CUDA, prepares its tensors, works for some seconds, and prints what it has done:
floating-point operations, bytes read and written, and its seconds. `idle` prepares the same, and
sleeps, so that a difference to it is the work's. A program that fails has a reason.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch

SECONDS = 12.0
SIDE, ELEMENTS = 8192, 2**30
"""Of the square matrices, in bfloat16; and of the copied tensors, of a byte each."""


def work(program: str, seconds: float, side: int = SIDE, elements: int = ELEMENTS) -> dict:
    """Multiply matrices, copy, or sleep, for some seconds; what was done."""
    left, right, product = (
        torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    source, copied = (torch.zeros(elements, device="cuda", dtype=torch.uint8) for _ in range(2))
    torch.cuda.synchronize()
    calls, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        for _ in range(10):
            if program == "matmul":
                torch.mm(left, right, out=product)
            elif program == "copy":
                copied.copy_(source)
            else:
                time.sleep(0.05)
        torch.cuda.synchronize()
        calls += 10
    return {
        "program": program,
        "flops": calls * 2 * side**3 if program == "matmul" else 0,
        "bytes": calls * 2 * elements if program == "copy" else 0,
        "seconds": time.perf_counter() - start_s,
    }


def measured(program: str, seconds: float, sizes: list[str]) -> dict:
    """A program's work, and what `opcost measure` states about it."""
    python = [sys.executable, "-m"]
    asked = [*python, "tests.gpu.known_work", "--", program, str(seconds), *sizes]
    command = [*python, "opcost", "measure", "--device", "cuda:0", "--json", "--", *asked]
    ran = subprocess.run(command, capture_output=True, text=True)
    try:
        stated = json.loads(ran.stderr[ran.stderr.index("{") :])
        return {**json.loads(ran.stdout), "measure": stated}
    except ValueError:
        return {"program": program, "reason": ran.stderr.strip()[-2000:]}


def main(output: Path, seconds: float = SECONDS, sizes: list[str] | None = None) -> None:
    """Write what is stated of each program."""
    found = [measured(each, seconds, sizes or []) for each in ("matmul", "copy", "idle")]
    output.write_text(json.dumps(found, indent=1) + "\n")
    for each in found:
        print(json.dumps(each))


if __name__ == "__main__":
    if sys.argv[1] == "--":
        program, seconds, *sizes = sys.argv[2:]
        print(json.dumps(work(program, float(seconds), *map(int, sizes))))
    else:
        main(Path(sys.argv[1]), *map(float, sys.argv[2:3]), sys.argv[3:])
