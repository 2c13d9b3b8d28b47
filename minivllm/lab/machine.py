"""Is this machine ready for the course? What it has, and what stands in the way.

Nothing is changed and nothing is sent anywhere; every problem comes with the command that mends it.
"""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata

from minivllm.lab.reproducible import gpu_is_visible

NEEDED = ("torch", "transformers", "jupyterlab", "ipywidgets", "anywidget", "plotly")
PYTHONS = ((3, 11), (3, 12), (3, 13))
LEAST_MEMORY_GIB = 4
GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """What was found. `versions`: package -> version, None where it is missing; `gpu`: its name, or None."""

    python: tuple[int, int] = field(default_factory=lambda: (sys.version_info.major, sys.version_info.minor))
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    memory_gib: float | None = None
    versions: dict[str, str | None] = field(default_factory=dict)
    gpu: str | None = None

    @property
    def problems(self) -> list[str]:
        """What stands in the way, one sentence each with its remedy; [] when every chapter will run."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.python not in PYTHONS:
            allowed = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
            given = ".".join(map(str, self.python))
            yield f"Python {given} is not among {allowed}: run `make PYTHON=python3.12 setup`"
        missing = [name for name in NEEDED if self.versions.get(name) is None]
        if missing:
            yield f"{', '.join(missing)} not found by this kernel: run `make lab`, and pick its Python 3 kernel"
        if self.memory_gib is not None and self.memory_gib < LEAST_MEMORY_GIB:
            yield f"{self.memory_gib:.1f} GiB of memory, {LEAST_MEMORY_GIB} are needed: close other programs"

    @property
    def kernels(self) -> str:
        """Which code does the arithmetic here, in words."""
        if self.gpu:
            return "Triton, compiled for the GPU"
        if self.versions.get("triton"):
            return "plain torch; Triton runs in its interpreter, for study"
        return "plain torch; Triton has no package for this system"

    def __str__(self) -> str:
        known = " · ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        memory = f", {self.memory_gib:.0f} GiB of memory" if self.memory_gib else ""
        return (
            f"computer  {self.system}, {self.cores} cores{memory}\n"
            f"GPU       {self.gpu or 'none: the CPU does it all'}\n"
            f"kernels   {self.kernels}\npackages  Python {'.'.join(map(str, self.python))} · {known}"
        )


def look() -> Machine:
    """The machine this runs on."""
    versions = {name: _version(name) for name in (*NEEDED, "triton")}
    return Machine(memory_gib=_memory_gib(), versions=versions, gpu=_gpu())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    except (AttributeError, ValueError, OSError):  # not told on every system
        return None


def _gpu() -> str | None:
    if not gpu_is_visible():
        return None
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
