"""The simulated GPU: building its libraries, running commands on it, and what they really did."""

import os
import platform
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.simulated_cuda.symbols import undefined
from tests.simulated_nvml import card

SOURCES = Path(__file__).parent
UUID = "GPU-00000000-0000-0000-0000-000000000001"
SECOND_UUID = UUID[:-1] + "2"
TORCH = Path(torch.__file__).parent
HEADERS = ("nvidia/cu13/include", "nvidia/cudnn/include", "triton/backends/nvidia/include")
# The real ones are right without a GPU.
REAL = re.compile(r"Get(ErrorString|ErrorName|Version|CudartVersion|Property|LastErrorString)$")
SIMULATED = re.compile(r"(__)?cu(da)?[A-Z]|cublas|cudnn")
LIBRARIES = re.compile(r"lib(cudart|cublas|cublasLt|cudnn)\.so|$")
STUB = "not simulated: "
LINE = struct.Struct("<224sddQQ")


def missing() -> str | None:
    """Why the simulated GPU cannot be built here, if so."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "the simulated CUDA runs on Linux with x86-64 only"
    if torch.version.cuda is None:
        return "this PyTorch was built without CUDA"
    if shutil.which("cc") is None:
        return "no C compiler (cc) to build the simulated CUDA with"
    absent = [folder for folder in HEADERS if not (TORCH.parent / folder).is_dir()]
    return f"PyTorch's packages have no {absent[0]}" if absent else None


@dataclass(frozen=True)
class Ran:
    """Launches of one kernel that took as long and drew as much each."""

    name: str
    seconds: float
    watts: float
    launches: int


class SimulatedGpu:
    """The libraries in a folder, and the records of the processes that ran on them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records = folder / "records"
        self._records.mkdir(parents=True)
        stubs = folder / "stubs.c"
        stubs.write_text("".join(map(stub, sorted(not_simulated()))))
        # It is the driver's library as well, so that what asks for that finds this.
        compiled(folder / "libcuda.so.1", *sorted(SOURCES.glob("*.c")), stubs)
        card.build(folder, f'-DUUID="{UUID}"', f'-DSECOND_UUID="{SECOND_UUID}"')

    def environment(self, **settings: float | str) -> dict[str, str]:
        """Of a process that runs on it; README.md and nvml.c name the settings."""
        searched = os.environ.get("LD_LIBRARY_PATH")
        return {
            **os.environ,
            "LD_PRELOAD": str(self._folder / "libcuda.so.1"),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(self._folder), searched])),
            "TORCH_CUDNN_V8_API_DISABLED": "1",
            "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",
            "SIMULATED_RECORDS": str(self._records),
            # A sensor refreshes visibly only if its readings differ.
            "SIMULATED_NOISE": "0.002",
            **{f"SIMULATED_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def processes(self) -> list[int]:
        """The ids of the processes that have called CUDA."""
        return sorted(int(path.name) for path in self._records.iterdir())

    def ran(self, process: int) -> list[Ran]:
        """What a process had done on the GPU, and the events that were counted, at zero seconds."""
        lines = LINE.iter_unpack((self._records / str(process)).read_bytes())
        return [
            Ran(name.rstrip(b"\0").decode(), seconds, watts, launches)
            for name, seconds, watts, launches, _ in lines
            if launches
        ]


def not_simulated() -> set[str]:
    """The functions of CUDA that PyTorch and torchvision call, unless the real ones do."""
    wheels = [*TORCH.glob("lib/*.so"), *(TORCH.parent / "torchvision").glob("*.so")]
    called = {
        name
        for library in wheels
        for name, version in undefined(library)
        if SIMULATED.match(name) and LIBRARIES.match(version)
    }
    return {name for name in called if not REAL.search(name)}


def stub(name: str) -> str:
    """A function that reports success, unless it is simulated."""
    body = f'int {name}(void) {{ return stub("{STUB}{name}"); }}'
    return f"int stub(const char *);\n__attribute__((weak)) {body}\n"


def compiled(library: Path, *sources: Path) -> None:
    """Compile the simulated CUDA."""
    packages = TORCH.parent
    options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    options += ["-Wno-deprecated-declarations", f"-Wl,-soname,{library.name}"]
    options += [f"-isystem{packages / folder}" for folder in HEADERS]
    subprocess.run(["cc", *options, "-o", library, *sources, "-lm"], check=True)
