import pytest

from minivllm import Engine, EngineConfig, SamplingParams


class Scene:
    """A small engine with traffic: two requests share a system prompt, the pool is too small for all."""

    def __init__(self, **changes):
        settings = {"block_size": 4, "num_blocks": 24, "max_num_batched_tokens": 16} | changes
        self.engine = Engine(EngineConfig(**settings))

    def ask(self, name, length, base, out, prefix=()):
        tokens = [*prefix, *range(base, base + length)]
        return self.engine.add(tokens, SamplingParams(max_tokens=out, temperature=0), request_id=name)

    def traffic(self):
        system = list(range(100, 108))
        self.ask("A", 9, 200, 16, system)
        self.ask("Z", 21, 300, 5)
        for _ in range(5):
            self.engine.step()
        self.ask("B", 37, 400, 20, system)
        self.ask("C", 26, 500, 20)
        for _ in range(9):
            self.engine.step()
        return self


@pytest.fixture
def scene():
    return Scene()
