"""`python -m minivllm`: chat, doctor, bench, experiment."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

COMMANDS = {
    "chat": ("minivllm.commands.chat", "talk to a model"),
    "doctor": ("minivllm.commands.doctor", "is this machine ready?"),
    "experiment": ("minivllm.commands.experiment", "run an experiment of the course and print its table"),
    "bench": ("minivllm.commands.bench", "measure throughput, latency, kernels, prefix reuse"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; misuse ends with one line on standard error and status 2, a reader that leaves with status 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character shows another one
    parser = argparse.ArgumentParser(
        prog="python -m minivllm", description="A small, fast LLM engine that can be read."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (module, summary) in COMMANDS.items():
        import_module(module).add_arguments(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    try:
        status: int = import_module(COMMANDS[options.command][0]).run(options)
        sys.stdout.flush()  # here, not at exit, so that a closed pipe is noticed below
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        return 1
    except (ValueError, OSError) as error:
        print(f"minivllm {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
