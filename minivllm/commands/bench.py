"""`python -m minivllm bench`: measurements. (placeholder until runner graphs)"""
import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""


def run(options: argparse.Namespace) -> int:
    """Measure."""
    return 0
