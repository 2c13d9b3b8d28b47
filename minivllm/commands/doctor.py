"""`python -m minivllm doctor`: is this machine ready? What it has, whether the kernels agree with torch, which model there is."""

import argparse
import dataclasses
import json
from typing import Any

from minivllm.lab.machine import look
from minivllm.lab.self_test import self_test


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the report. Exit status 0 if everything will run here, 1 if something stands in the way."""
    report = examine()
    print(json.dumps(report, indent=2) if options.json else to_text(report))
    return 0 if report["ready"] else 1


def examine() -> dict[str, Any]:
    """Everything the report says, as plain data. Kernels that cannot run here are no obstacle; wrong ones are."""
    kernels = self_test()  # first: on a machine without a GPU, Triton must be told before anything imports it
    machine, model = look(), _model()
    wrong = [f"kernel {name} {says}" for name, says in kernels.items() if says.startswith(("fails", "differs"))]
    problems = [*machine.problems, *wrong, *([] if model["found"] else [model["says"]])]
    return {
        "machine": dataclasses.asdict(machine),
        "kernels": kernels,
        "model": model,
        "problems": problems,
        "ready": not problems,
        "text": str(machine),
    }


def to_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    lines = [report["text"], f"model     {report['model']['says']}"]
    lines += [f"self-test {name} {says}" for name, says in report["kernels"].items()]
    lines += [f"problem   {problem}" for problem in report["problems"]]
    return "\n".join([*lines, "ready" if report["ready"] else "not ready"])


def _model() -> dict[str, Any]:
    try:
        from minivllm.model.locate import locate

        found = locate(None)
    except (ImportError, FileNotFoundError) as error:
        return {"found": False, "says": str(error)}
    return {"found": True, "says": f"{found.name} ({found.why})", "name": found.name}
