"""A Hugging Face directory: `config.json`, one or several safetensors files, tokenizer files.

Only safetensors are opened. A `.bin` file is a pickle, which runs code when it is read, and is refused; so is
code in the repository.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class SafetensorsCheckpoint:
    """`config`, `generation` and tensors as the files have them; ValueError for missing or malformed ones."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = _read_json(directory / "config.json")
        self.generation = _read_json(directory / "generation_config.json", optional=True)
        self._open_files: dict[str, Any] = {}

    def get(self, name: str) -> Tensor:
        """The tensor in the dtype of the file."""
        file = self._file_of.get(name)
        if file is None:
            raise ValueError(f"tensor {name} is missing")
        try:
            return self._file(file).get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{file}: tensor {name}: {error}") from error

    def tokenizer(self) -> PreTrainedTokenizerFast | None:
        """The directory's tokenizer with its chat template, or None where the directory has no tokenizer."""
        if not any((self.directory / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
            return None
        try:
            return AutoTokenizer.from_pretrained(self.directory, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the libraries below raise nothing narrower
            raise ValueError(f"its tokenizer files cannot be read: {error}") from error

    @cached_property
    def _file_of(self) -> dict[str, str]:
        """Tensor name -> file name. Looked up once the config is known to be one we support."""
        if (self.directory / SINGLE).exists():
            return dict.fromkeys(self._file(SINGLE).keys(), SINGLE)
        if not (self.directory / INDEX).exists():
            pickles = [path.name for path in self.directory.glob("*.bin")]
            hint = f"; {pickles} are pickles, which are never loaded" if pickles else ""
            raise ValueError(f"has neither {SINGLE} nor {INDEX}{hint}")
        file_of = _read_json(self.directory / INDEX).get("weight_map")
        if not isinstance(file_of, dict):
            raise ValueError(f"{INDEX}: has no weight_map")
        shards = sorted(set(map(str, file_of.values())))
        if outside := [shard for shard in shards if Path(shard).name != shard]:
            raise ValueError(f"{INDEX}: names files outside its directory: {outside}")
        if missing := [shard for shard in shards if not (self.directory / shard).exists()]:
            raise ValueError(f"incomplete, the index names {missing}, which are not there")
        return file_of

    def _file(self, name: str) -> Any:
        if name not in self._open_files:
            try:
                self._open_files[name] = safe_open(self.directory / name, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{name}: not a readable safetensors file: {error}") from error
        return self._open_files[name]


def _read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name}: holds {type(content).__name__}, expected an object")
    return content
