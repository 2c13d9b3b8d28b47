"""What a figure is worth nothing without: the machine, the versions, the date, the command."""

import platform
import shutil
import subprocess
import sys
import time

import torch
import triton


def where() -> dict[str, str]:
    """Card (or processor) and its driver, versions, date, and the command line that is running."""
    found = {"card": platform.processor() or platform.machine()}
    if torch.cuda.is_available():
        found = {"card": torch.cuda.get_device_name(0), "driver": _driver()}
    found |= {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    return found | {"date": time.strftime("%Y-%m-%d"), "command": "python -m minivllm " + " ".join(sys.argv[1:])}


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    return lines[0] if lines else "unknown"
