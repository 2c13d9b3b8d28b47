"""`python -m minivllm bench`: throughput, latency, prefix, profile, accuracy, kernels; a line each, optionally as JSON."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minivllm.commands.arguments import new_file

SHORTEST = 100  # tokens of the throughput workload's prompts and outputs
ON_GPU = {"requests": 256, "longest": 1024, "batches": (1, 16, 64, 256)}
ON_CPU = {"requests": 8, "longest": 128, "batches": (1, 4)}  # what a GPU does in seconds takes a laptop an hour
WHATS = ("throughput", "latency", "prefix", "profile", "peer", "accuracy", "kernels")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("what", choices=WHATS, nargs="+", help="what to measure; several run in one process")
    parser.add_argument("--model", help="hub name, directory or GGUF file; default: the best model at hand")
    parser.add_argument("--dummy-weights", metavar="SHAPE", help="a known shape with random weights: qwen3-0.6b")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--block-size", type=int, default=16, help="tokens per KV block (default 16)")
    parser.add_argument("--num-blocks", type=int, help="KV blocks of the pool; default: what the memory allows")
    parser.add_argument("--max-model-len", type=int, default=4096, help="prompt and answer together (default 4096)")
    parser.add_argument(
        "--max-num-batched-tokens", type=int, default=16384, help="token budget of a step (default 16384)"
    )
    parser.add_argument(
        "--kv-cache-dtype", default="auto", choices=("auto", "fp8"), help="how K and V are stored; fp8 needs a GPU"
    )
    parser.add_argument("--requests", type=_from(1), help=f"requests of throughput ({_defaults('requests')})")
    parser.add_argument(
        "--longest", type=_from(SHORTEST), help=f"longest prompt and output of throughput ({_defaults('longest')})"
    )
    parser.add_argument(
        "--batches", type=_sizes, help=f"batch sizes of latency and profile, with commas ({_defaults('batches')})"
    )
    parser.add_argument(
        "--context", type=_from(1), default=640, help="context length of latency and profile (default 640)"
    )
    parser.add_argument("--text", metavar="FILE", help="real text for accuracy")
    parser.add_argument(
        "--repeats", type=_from(1), default=3, help="runs of throughput and peer; the median counts (default 3)"
    )
    parser.add_argument("--enforce-eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--no-overlap", action="store_true", help="plan a step only when the one before is done")
    parser.add_argument("--json", metavar="FILE", type=new_file, help="write everything as JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    rows: list[dict[str, Any]] = []
    if set(options.what) & {"throughput", "latency", "prefix", "profile", "peer"}:
        rows += _engine(options)
    if "accuracy" in options.what:
        rows += _accuracy(options)
    failed = 0
    if "kernels" in options.what:
        from minivllm.bench import kernels

        rows += kernels.report(kernels.ALL)
        failed = kernels.wrong(rows)
    if options.json:
        from minivllm.bench.where import where

        options.json.write_text(json.dumps({"where": where(), "rows": rows}, indent=1), encoding="utf-8")
    return int(failed > 0)


def _engine(options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    from minivllm.bench import engine, peer, roofline
    from minivllm.bench.shapes import dummy_model
    from minivllm.llm import LLM, resolve_device

    device = resolve_device(options.device)
    for name, default in (ON_GPU if device.startswith("cuda") else ON_CPU).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    began = time.perf_counter()
    model: Any = options.model
    if options.dummy_weights:
        dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
        model = dummy_model(options.dummy_weights, device, dtype)
    llm = LLM(
        model, device=device, dtype=options.dtype, block_size=options.block_size, num_blocks=options.num_blocks,
        max_model_len=options.max_model_len, max_num_batched_tokens=options.max_num_batched_tokens,
        enforce_eager=options.enforce_eager, async_scheduling=not options.no_overlap, kv_cache_dtype=options.kv_cache_dtype,
    )  # fmt: skip
    rows: list[dict[str, Any]] = [{"what": "start", "seconds": round(time.perf_counter() - began, 2)}]
    weights = llm.engine.model.weights.embed  # type: ignore[union-attr]
    ceilings = roofline.measure(device, weights.dtype)
    rows.append(
        {
            "what": "ceilings",
            "read GB/s": round(ceilings.read / 1e9),
            "matmul TFLOP/s": round(ceilings.matmul / 1e12, 2),
        }
    )
    for row in rows:
        print(_line(row), flush=True)
    for what in options.what:
        if what == "throughput":
            found = engine.throughput(
                llm, ceilings, requests=options.requests, longest=options.longest, repeats=options.repeats
            )
        elif what == "latency":
            found = engine.latency(llm, ceilings, batches=options.batches, context=options.context, steps=60)
        elif what == "prefix":
            found = engine.prefix(llm, cases=engine.PREFIX_CASES[: None if device.startswith("cuda") else 1])
        elif what == "peer":
            found = peer.compare(llm, repeats=options.repeats)
        elif what == "profile":
            found = (row for batch in options.batches for row in engine.profile(llm, batch, options.context))
        else:
            continue
        for row in found:
            print(_line(row), flush=True)
            rows.append(row)
    llm.close()
    return rows


def _accuracy(options: argparse.Namespace) -> list[dict[str, Any]]:
    from minivllm.bench.accuracy import accuracy
    from minivllm.llm import resolve_device

    if options.text is None:
        raise ValueError("accuracy needs --text FILE: a file of real text")
    rows = []
    for row in accuracy(options.model, Path(options.text).read_text(encoding="utf-8"), resolve_device(options.device)):
        print(_line(row), flush=True)
        rows.append(row)
    return rows


def _defaults(name: str) -> str:
    said = [str(sizes[name]).strip("()").replace(" ", "") for sizes in (ON_GPU, ON_CPU)]
    return f"default {said[0]} on a GPU, {said[1]} on a CPU"


def _from(low: int) -> Callable[[str], int]:
    """What turns an argument into a whole number of `low` or more."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number of {low} or more")
        return int(text)

    return number


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_from(1)(size.strip()) for size in text.split(","))


def _line(row: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" if name != "what" else f"{value}:" for name, value in row.items())
