"""The surroundings in which a notebook always gives the same output: one thread, offline, an empty record.

The tests and the notebook builder both call `settle`, so that what is compared was made in the same way. It
must run before torch, triton or transformers are imported; kernels started afterwards inherit it. Python's
hash seed is left random on purpose: an output that depends on it must fail.
"""

import os
from importlib import metadata
from pathlib import Path

SETTINGS = {
    "OMP_NUM_THREADS": "1",  # two threads beside one other busy process are up to 30 times slower
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}


def settle(home: Path) -> None:
    """Set the environment of this process and of the kernels it starts; `home` holds the student's record.

    What the caller has set already is kept, apart from the home. Without a GPU, Triton kernels run in its
    interpreter, which can only be chosen before triton is imported.
    """
    os.environ["MINIVLLM_HOME"] = str(home)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if not gpu_is_visible():
        os.environ.setdefault("TRITON_INTERPRET", "1")


def gpu_is_visible() -> bool:
    """Whether an NVIDIA GPU can be used, found out without importing torch (1.5 s)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in {"", "-1"}:
        return False
    try:
        if metadata.version("torch").endswith("+cpu"):
            return False
    except metadata.PackageNotFoundError:
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()  # the latter: Windows' Linux
