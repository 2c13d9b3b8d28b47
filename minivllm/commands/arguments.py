"""What several commands read from their command line."""

import argparse
import os
from pathlib import Path


def new_file(text: str) -> Path:
    """A file that can be written, so that a wrong name is refused before the work and not after it."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: permission denied")
    return path
