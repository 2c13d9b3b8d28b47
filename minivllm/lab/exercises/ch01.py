"""Chapter 01: what keeping K and V costs in bytes, and what not keeping them costs in work."""

from collections.abc import Callable
from numbers import Real
from typing import Any

from minivllm import Engine, EngineConfig, SamplingParams
from minivllm.allowed import shown
from minivllm.lab.grading import Wrong, exercise, require, returned

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one number, by the name a config.json gives its type."""

CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": {
        "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "torch_dtype": "float16",
    },
    "Llama-3-8B": {
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
        "torch_dtype": "bfloat16",
    },
    "Qwen3-0.6B": {
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "hidden_size": 1024,
        "head_dim": 128, "torch_dtype": "bfloat16",
    },
    "SmolLM2-135M": {
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576,
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip
"""What the config.json of four models says about K and V. Llama-2-7B's early file did not name its KV heads yet."""

PER_TOKEN = {"Llama-2-7B": 524_288, "Llama-3-8B": 131_072, "Qwen3-0.6B": 114_688, "SmolLM2-135M": 23_040}


@exercise(
    "01.kv_bytes",
    hints=[
        "One token leaves a key and a value, in every layer, for every KV head. How many numbers is that?",
        "2 × layers × KV heads × head_dim numbers per token. If the config names no KV heads, each head has its "
        "own; if it names no head_dim, it is hidden_size // heads.",
        'kv_heads = config.get("num_key_value_heads", config["num_attention_heads"]); likewise for head_dim; then '
        'multiply by 2, the layers, BYTES[config["torch_dtype"]] and the tokens.',
    ],
)
def kv_bytes(student: Callable[[dict[str, Any], int], int]) -> str:
    """Bytes of K and V for a model's config and a number of tokens."""
    llama = CONFIGS["Llama-3-8B"]
    small = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 64}
    plain = _ask(student, small | {"torch_dtype": "float16"}, 10)  # 2 * 3 * 4 * 16 numbers per token
    wide = _ask(student, small | {"torch_dtype": "float32"}, 10)
    same = (
        'float32 numbers take 4 bytes, float16 ones 2, but both give the same: multiply by BYTES[config["torch_dtype"]]'
    )
    require(wide != plain, same)
    require(plain != 3840, "half of it is missing: a token leaves a key *and* a value")
    require(plain != 2560, "the layers are missing: each of them keeps its own K and V")
    require(plain != 768, "that is one token: multiply by the tokens")
    require(wide == 2 * plain, f"float32 numbers take 4 bytes, float16 ones 2: {wide} cannot be right beside {plain}")
    require(
        plain == 7680, f"3 layers, 4 heads of 16, float16, 10 tokens: 2 · 3 · 4 · 16 · 2 · 10 = 7680 bytes, not {plain}"
    )
    grouped = _ask(student, llama, 1)
    require(
        grouped != 524_288,
        "524,288 is what all 32 heads of Llama-3-8B would take: 8 KV heads are kept, each as wide as a query head, "
        "hidden_size // num_attention_heads",
    )
    require(grouped == 131_072, f"Llama-3-8B keeps 131,072 bytes for a token, not {grouped}")
    qwen = _ask(student, CONFIGS["Qwen3-0.6B"], 1)
    require(
        qwen != 57_344,
        "Qwen3-0.6B says head_dim 128; hidden_size // heads would be 64, and is only for configs that do not say",
    )
    for name, expected in PER_TOKEN.items():
        got = _ask(student, CONFIGS[name], 2048)
        require(got == 2048 * expected, f"{name}, 2048 tokens: {2048 * expected:,} bytes, not {got:,}")
    return "right for all four: Llama-2-7B needs exactly 1 GiB for 2048 tokens, Llama-3-8B a quarter of that"


class NotInConfig(KeyError):
    """What a config says when it is asked for a key that it lacks; a KeyError of anything else is the student's own."""


class Config(dict[str, Any]):
    """A config.json."""

    def __missing__(self, key: str) -> Any:
        """Raises `NotInConfig`."""
        raise NotInConfig(key)


def _ask(student: Callable[[dict[str, Any], int], int], config: dict[str, Any], tokens: int) -> int:
    try:
        found = returned(student(Config(config), tokens))
    except NotInConfig as error:
        name = error.args[0]
        meaning = {
            "num_key_value_heads": "then every head has its own K and V",
            "head_dim": "then it is hidden_size // num_attention_heads",
        }.get(str(name), "no config has it")
        raise Wrong(f"this config.json does not say {name}: {meaning}") from None
    require(
        isinstance(found, Real),
        f"give a number of bytes, not {shown(found)}: BYTES[config['torch_dtype']] are those of one number",
    )
    return found


@exercise(
    "01.positions",
    hints=[
        "The last token is written but never read by anyone: nothing is computed for it.",
        "With a cache: the prompt once, then one position for each further token but the last. Without: the whole text "
        "so far, once per new token.",
        "prompt + new - 1 with a cache; without one, sum(prompt + k for k in range(new)).",
    ],
)
def positions(student: Callable[[int, int, bool], int]) -> str:
    """Positions a model computes for `new` tokens after a prompt, with and without a cache: a live engine checks."""
    for prompt, new in ((8, 40), (5, 1), (1, 7), (30, 12)):
        kept, lost = returned(student(prompt, new, True)), returned(student(prompt, new, False))
        require(kept != prompt + new, "with a cache you count one too many: the last token written is never fed back")
        told = _on_an_engine(prompt, new, cached=True)
        require(
            kept == told, f"prompt {prompt}, {new} new, with a cache: the engine computes {told} positions, not {kept}"
        )
        require(
            lost != prompt * new or new == 1,
            "without a cache the text that is computed grows by one with every new token",
        )
        told = _on_an_engine(prompt, new, cached=False)
        require(
            lost != told + new, "without a cache too, the first step computes the prompt alone: nothing is written yet"
        )
        require(
            lost == told,
            f"prompt {prompt}, {new} new, without a cache: the engine computes {told} positions, not {lost}",
        )
    return "the engine counts the same, with and without a cache"


def _on_an_engine(prompt: int, new: int, cached: bool) -> int:
    """The same, counted by a simulated engine that runs it."""
    engine = Engine(EngineConfig(num_blocks=64, enable_prefix_caching=False))
    counts: list[int] = []
    engine.bus.subscribe(lambda event: counts.append(event.count) if event.kind == "run" else None)  # type: ignore[attr-defined]
    tokens = list(range(prompt))
    for _ in range(1 if cached else new):
        engine.add(tokens, SamplingParams(temperature=0, max_tokens=new if cached else 1))
        tokens = tokens + engine.run()[0].outputs[0].token_ids
    return sum(counts)
