"""`python -m minivllm chat`: talk to a model in the terminal; each turn reuses the K/V of the turns before it."""

import argparse
import logging
import sys
import time
from dataclasses import replace

from minivllm.request import SamplingParams

HELP = "commands: /reset starts over, /quit (or Ctrl-D) leaves, Ctrl-C stops an answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--model", help="hub name, directory or GGUF file; default: the best model at hand")
    parser.add_argument("--prompt", help="answer this one message and exit")
    parser.add_argument("--system", help="system message")
    parser.add_argument("--temperature", type=float, help="0 is greedy; default: the model's own, else 0.7")
    parser.add_argument("--top-p", type=float, help="nucleus sampling; default: the model's own")
    parser.add_argument("--max-tokens", type=int, default=512, help="longest answer (default 512)")
    parser.add_argument("--seed", type=int, help="same seed, same answer")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--block-size", type=int, default=16, help="tokens per KV block (default 16)")
    parser.add_argument("--verbose", action="store_true", help="log every event of the engine in words")


def run(options: argparse.Namespace) -> int:
    """Answer `--prompt`, or chat until the user leaves. Returns the exit status."""
    from minivllm.eventlog import log_events
    from minivllm.llm import LLM

    with LLM(options.model, device=options.device, dtype=options.dtype, block_size=options.block_size) as llm:
        print(f"{llm.name} ({llm.why})", file=sys.stderr)
        if options.verbose:
            logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
            log_events(llm.engine)
        wanted = {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
        given = {name: value for name, value in wanted.items() if value is not None}
        default = {} if "temperature" in llm.generation else {"temperature": 0.7}
        params = replace(llm.default_params(), max_tokens=options.max_tokens, **{**default, **given})
        talk = [{"role": "system", "content": options.system}] if options.system else []
        if options.prompt is not None:
            return 0 if _answer(llm, [*talk, {"role": "user", "content": options.prompt}], params) else 1
        print(HELP, file=sys.stderr)
        return _chat(llm, talk, params)


def _chat(llm, talk: list[dict[str, str]], params: SamplingParams) -> int:  # type: ignore[no-untyped-def]
    opening = list(talk)
    while True:
        try:
            said = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if said in ("/quit", "/exit"):
            return 0
        if said == "/reset":
            talk = list(opening)
        elif said.startswith("/"):
            print(HELP, file=sys.stderr)
        elif said:
            asked = [*talk, {"role": "user", "content": said}]
            answer = _answer(llm, asked, params)
            if answer is not None:
                talk = [*asked, {"role": "assistant", "content": answer}]


def _answer(llm, talk: list[dict[str, str]], params: SamplingParams) -> str | None:  # type: ignore[no-untyped-def]
    """Stream an answer to standard output, a line of figures to standard error; None if it was refused or stopped."""
    began = time.perf_counter()
    pieces: list[str] = []
    first = began
    try:
        try:
            name = llm.engine.add(llm.chat_tokens(talk), params)
        except ValueError as error:
            print(f"refused: {error}", file=sys.stderr)
            return None
        for piece in llm.engine.stream(name):
            first = first if pieces else time.perf_counter()
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print("\nstopped; this question and its answer are forgotten", file=sys.stderr)
        return None
    print()
    result = llm.engine.result(name)
    tokens, ended = len(result.outputs[0].token_ids), time.perf_counter()
    rate = f", {(tokens - 1) / (ended - first):.1f} tok/s" if len(pieces) > 1 else ""
    print(
        f"[prompt {len(result.prompt_token_ids)} tokens, {result.num_cached_tokens} of them cached; first text after "
        f"{(first - began) * 1000:.0f} ms; {tokens} tokens{rate}; {result.outputs[0].finish_reason}]",
        file=sys.stderr,
    )
    return "".join(pieces)
