"""`python -m minivllm doctor`: is this machine ready? Versions, device, a kernel self-test, the models at hand."""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from typing import Any

PACKAGES = ("torch", "triton", "transformers", "numpy", "jupyterlab", "ipywidgets", "anywidget", "plotly", "nbval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the report. Exit status 0 if the engine can run here, 1 if something it needs is missing."""
    report = examine()
    print(json.dumps(report, indent=2) if options.json else to_text(report))
    return 0 if report["ready"] else 1


def examine() -> dict[str, Any]:
    """Everything the report says, as plain data."""
    versions = {name: _version(name) for name in PACKAGES}
    checks = {"torch": _torch(), "triton": _triton(), "model": _model()}
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "versions": versions,
        **checks,
        "ready": checks["torch"]["ok"] and checks["model"]["ok"],
    }


def to_text(report: dict[str, Any]) -> str:
    """The report for a terminal: one line a fact, ✓ or ✗ before what was tested."""
    lines = [f"Python {report['python']} on {report['machine']}"]
    lines += [f"  {name} {version or 'not installed'}" for name, version in report["versions"].items()]
    for name in ("torch", "triton", "model"):
        lines.append(f"{'✓' if report[name]['ok'] else '✗'} {name}: {report[name]['says']}")
    lines.append("ready" if report["ready"] else "not ready: mend the lines marked ✗")
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> dict[str, Any]:
    try:
        import torch
    except Exception as error:  # a broken install raises many kinds
        return {"ok": False, "says": f"cannot be imported ({error}); pip install torch"}
    if not torch.cuda.is_available():
        return {"ok": True, "says": f"CPU, {torch.get_num_threads()} threads", "device": "cpu"}
    card = torch.cuda.get_device_properties(0)
    return {"ok": True, "says": f"{card.name}, {card.total_memory / 2**30:.0f} GiB", "device": "cuda"}


def _triton() -> dict[str, Any]:
    """Run a kernel against the reference: on the GPU, or in Triton's interpreter in a process of its own."""
    if _version("triton") is None:
        return {
            "ok": False,
            "says": "not installed (Linux only); kernels cannot be studied here, the engine uses torch",
        }
    code = "from minivllm.commands.selftest import main; main()"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = (tried.stdout if tried.returncode == 0 else tried.stderr).strip().splitlines()[-1:] or ["no output"]
    return {"ok": tried.returncode == 0, "says": last[0]}


def _model() -> dict[str, Any]:
    try:
        from minivllm.model.locate import locate

        found = locate(None)
    except Exception as error:
        return {"ok": False, "says": str(error)}
    return {"ok": True, "says": f"{found.name} ({found.why})", "name": found.name}
