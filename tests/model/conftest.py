"""A hand-made paged pool, and tiny models saved as transformers saves them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from minivllm.kernels.batch import StepBatch
from minivllm.kernels.ops import get_ops
from minivllm.model import Decoder, LoadedModel


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class PagedModel:
    """A decoder over a pool whose every slot is NaN, with blocks handed out in a shuffled order."""

    def __init__(self, model: LoadedModel, block_size: int = 16, num_blocks: int = 64, seed: int = 0) -> None:
        spec = model.spec
        self.decoder, self.block_size = Decoder(spec, model.weights, get_ops("cpu")), block_size
        shape = (spec.num_layers, 2, num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        self.kv = torch.full(shape, torch.nan, dtype=model.weights.embed.dtype)
        shuffled = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
        self.free = shuffled.tolist()
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}

    def share(self, owner: str, other: str, tokens: int) -> None:
        """`other` starts with the first `tokens` of `owner` already cached, in the very same blocks."""
        assert tokens % self.block_size == 0
        self.tables[other] = self.tables[owner][: tokens // self.block_size]
        self.lengths[other] = tokens

    def feed(self, rows: Sequence[tuple[str, Sequence[int]]]) -> Tensor:
        """One step: append tokens to the named requests; logits of each one's last token `[len(rows), vocab]`."""
        tokens, positions, slots, starts, contexts = [], [], [], [0], []
        for name, new in rows:
            table, start = self.tables.setdefault(name, []), self.lengths.get(name, 0)
            for position, token in enumerate(new, start):
                if position // self.block_size == len(table):
                    table.append(self.free.pop())
                tokens.append(token)
                positions.append(position)
                slots.append(table[position // self.block_size] * self.block_size + position % self.block_size)
            self.lengths[name] = start + len(new)
            starts.append(len(tokens))
            contexts.append(self.lengths[name])
        width = max(len(self.tables[name]) for name, _ in rows) + 1
        padded = [self.tables[name] + [10**6] * (width - len(self.tables[name])) for name, _ in rows]
        batch = StepBatch(
            positions=torch.tensor(positions, dtype=torch.int32),
            slots=torch.tensor(slots),
            query_starts=torch.tensor(starts, dtype=torch.int32),
            context_lens=torch.tensor(contexts, dtype=torch.int32),
            block_tables=torch.tensor(padded, dtype=torch.int32),
            max_query_len=max(len(new) for _, new in rows),
            max_context_len=max(contexts),
            logit_rows=torch.tensor(starts[1:]) - 1,
        )
        with torch.inference_mode():
            return self.decoder.forward(torch.tensor(tokens), batch, self.kv)

    def greedy(self, name: str, prompt: Sequence[int], count: int) -> list[int]:
        out: list[int] = []
        while len(out) < count:
            out.append(int(self.feed([(name, [out[-1]] if out else prompt)]).argmax()))
        return out


@pytest.fixture
def paged() -> Callable[..., PagedModel]:
    return PagedModel


@pytest.fixture
def save_tiny(tmp_path: Path) -> Callable[..., tuple[Path, torch.nn.Module]]:
    """Save a random model of a transformers class; its directory, and the model as the reference."""

    def save(config, directory: str = "tiny", **options):
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        reference = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():  # biases start at zero and norms at one, which would hide their absence
            for name, parameter in reference.named_parameters():
                if name.endswith(("bias", "norm.weight")):
                    parameter.add_(0.3 * torch.randn_like(parameter))
                else:
                    parameter.mul_(4)
        reference.save_pretrained(tmp_path / directory, **options)
        return tmp_path / directory, reference

    return save
