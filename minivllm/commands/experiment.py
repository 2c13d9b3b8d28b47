"""`python -m minivllm experiment NAME`: one experiment of the course, one table, optionally as JSON."""

import argparse

from minivllm.commands.arguments import new_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("name", nargs="?", help="which experiment; without a name, all are listed")
    parser.add_argument(
        "--json", metavar="FILE", type=new_file, help="also write the table as JSON, with machine, versions and seed"
    )
    parser.add_argument("--model", help="for experiments with a real model; default: the best at hand")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")


def run(options: argparse.Namespace) -> int:
    """Run and print it, or list what there is."""
    from minivllm.lab import experiments

    if options.name is None:
        width = max(map(len, experiments.names()))
        for name, summary in experiments.names().items():
            print(f"{name:<{width}}  {summary}")
        return 0
    print(experiments.run(options.name, json_path=options.json, model=options.model, device=options.device).to_text())
    return 0
