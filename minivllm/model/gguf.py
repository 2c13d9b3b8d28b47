"""GGUF: one file that holds a model's hyperparameters, its tokenizer and its (usually quantised) tensors.

Layout: magic, version, two counts; then typed key-value pairs; then a directory of tensors; then, aligned,
their bytes. The file is mapped, not read, and everything it claims is checked against its size before it is
believed: a file from the network may be cut short, or may be something else. Format:
github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from minivllm.model.dequantize import FORMATS, dequantize

STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class TensorInfo:
    """An entry of the directory."""

    shape: tuple[int, ...]  # slowest dimension first, as torch has it; the file says it the other way round
    kind: int  # ggml type number, a key of FORMATS
    offset: int  # bytes from the start of the file


class GGUFFile:
    """An open GGUF file: `metadata` (key -> value), `tensors` (name -> TensorInfo), `load` for the numbers.

    Raises ValueError, saying what is wrong and where, if the file is not well-formed GGUF version 2 or 3.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            if self.path.stat().st_size < 24:
                raise ValueError(f"not a GGUF file, only {self.path.stat().st_size} bytes")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        magic, version, tensors, pairs = self._unpack("4sIQQ", "header")
        if magic != b"GGUF":
            raise ValueError(f"not a GGUF file, it starts with {magic!r} instead of b'GGUF'")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version} is not supported; supported: 2, 3 (little-endian)")
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string("metadata key")
            (kind,) = self._unpack("I", key)
            self.metadata[key] = self._value(kind, key)
        entries = dict(self._tensor_entry() for _ in range(tensors))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}, expected a positive integer")
        start = -(-self._at // alignment) * alignment
        self.tensors = {name: self._placed(name, *entry, start) for name, entry in entries.items()}

    def load(self, name: str) -> np.ndarray:
        """The tensor as float32, in its `shape`. Raises ValueError if there is none of that name."""
        if name not in self.tensors:
            raise ValueError(f"tensor {name} is missing")
        info = self.tensors[name]
        return dequantize(self._bytes, info.offset, prod(info.shape), info.kind).reshape(info.shape)

    def _unpack(self, layout: str, what: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + layout)
        return struct.unpack_from("<" + layout, self._bytes, self._advance(size, what))

    def _advance(self, size: int, what: str) -> int:
        """Step over `size` bytes; their offset."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._bytes):
            raise ValueError(f"truncated in {what}: needs {self._at} bytes, the file has {len(self._bytes)}")
        return start

    def _string(self, what: str) -> str:
        (size,) = self._unpack("Q", what)
        start = self._advance(size, what)
        return self._bytes[start : start + size].decode("utf-8", errors="replace")

    def _value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self._string(key)
        if kind in SCALARS:
            return self._unpack(SCALARS[kind], key)[0]
        if kind != ARRAY:
            raise ValueError(f"metadata {key} has unknown type {kind}")
        kind, count = self._unpack("IQ", key)
        if kind in SCALARS:
            dtype = np.dtype("?" if kind == 7 else "<" + np.dtype(SCALARS[kind]).str[1:])
            return np.frombuffer(self._bytes, dtype, count, self._advance(count * dtype.itemsize, key)).tolist()
        if kind == STRING:
            return [self._string(key) for _ in range(count)]
        raise ValueError(f"metadata {key} is an array of unsupported type {kind}")

    def _tensor_entry(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name = self._string("tensor directory")
        (dims,) = self._unpack("I", name)
        if not 1 <= dims <= 4:
            raise ValueError(f"tensor {name} has {dims} dimensions, expected 1 to 4")
        *shape, kind, offset = self._unpack(f"{dims}QIQ", name)
        return name, (tuple(reversed(shape)), kind, offset)

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, offset: int, start: int) -> TensorInfo:
        """The entry with its absolute offset, once it is sure that all of its bytes are there."""
        if kind not in FORMATS:
            names = ", ".join(form.name for form in FORMATS.values())
            raise ValueError(f"tensor {name} has ggml type {kind}, which is not supported; these are: {names}")
        form = FORMATS[kind]
        if shape[-1] % form.block:
            raise ValueError(f"tensor {name} has rows of {shape[-1]}, {form.name} needs a multiple of {form.block}")
        end = start + offset + prod(shape) // form.block * form.bytes
        if end > len(self._bytes):
            raise ValueError(f"truncated: tensor {name} ends at byte {end}, the file has {len(self._bytes)}")
        return TensorInfo(shape, kind, start + offset)
