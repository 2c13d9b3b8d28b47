"""The offline face, as in vLLM: a model by name, prompts in, texts out."""

from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from minivllm.allowed import shown
from minivllm.config import EngineConfig
from minivllm.engine import Engine
from minivllm.model.weights import LoadedModel, load
from minivllm.output import RequestOutput
from minivllm.request import SamplingParams

Prompt = str | Sequence[int] | dict[str, Any]
_CONVERSATION = 'a list of {"role": text, "content": text}'


class LLM:
    """A model and its engine. `model`: a hub name, a directory, a GGUF file, a loaded model, or None for the best model at
    hand.

    Every other keyword is a field of `EngineConfig`; `policy`, `eviction`, `hasher` and `kernels` also take objects, as
    `Engine` does. `llm.engine` is the live engine, `llm.why` says how the model was chosen.
    """

    def __init__(self, model: str | Path | LoadedModel | None = None, **options: Any) -> None:
        parts = {
            name: options.pop(name)
            for name in ("policy", "eviction", "hasher", "kernels")
            if name in options and not (name != "hasher" and isinstance(options[name], str))
        }
        config = EngineConfig().replace(**options)
        device = resolve_device(config.device)
        loaded = model if isinstance(model, LoadedModel) else load(model, dtype=config.dtype, device=device)
        self.name, self.why, self.generation = loaded.name, loaded.why, loaded.generation
        self.engine = Engine(config, model=loaded, **parts)
        self.tokenizer = self.engine.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete every prompt and return the outputs in their order.

        A prompt is text, a list of token ids, or `{"prompt_token_ids": [...]}` / `{"prompt": "..."}`, which may have a
        `"cache_salt"`: prompts with different ones never share blocks. One `SamplingParams`
        serves all, or give one per prompt. Either all are accepted or none: a bad prompt raises `ValueError` naming its index.
        An interrupt aborts what this call queued, and nothing else.
        """
        listed = _as_list(prompts)
        params = self._params_for(sampling_params, len(listed))
        names: list[str] = []
        try:
            for index, (prompt, wanted) in enumerate(zip(listed, params, strict=True)):
                try:
                    content, salt = _content(prompt)
                    names.append(self.engine.add(content, wanted, cache_salt=salt))
                except ValueError as error:
                    raise ValueError(f"prompt {index}: {error}") from None
            return self._drive(names, use_tqdm)
        except BaseException:
            for name in names:
                if not self.engine.closed:
                    self.engine.abort(name)
            raise

    def chat(
        self,
        messages: Sequence[dict[str, str]] | Sequence[Sequence[dict[str, str]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several: lists of `{"role": ..., "content": ...}`, through the model's chat template."""
        if not isinstance(messages, list | tuple):
            raise ValueError(f"messages is {shown(messages)}; allowed: {_CONVERSATION}, or a list of such lists")
        talks: Any = [messages] if any(isinstance(message, dict) for message in messages) else messages
        return self.generate([self.chat_tokens(talk) for talk in talks], sampling_params, use_tqdm=use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[str]:
        """Yield the text of one completion as it becomes visible: never half a character, never part of a stop string.

        Nothing is queued, and nothing refused, before the first piece is asked for.
        """
        (params,) = self._params_for(sampling_params, 1)
        if params.n > 1:
            raise ValueError(f"n is {params.n}; a stream is one completion, so n=1, or use generate()")
        content, salt = _content(prompt)
        name = self.engine.add(content, params, cache_salt=salt)
        try:
            yield from self.engine.stream(name)
        except BaseException:
            if not self.engine.closed:
                self.engine.abort(name)
            raise

    def chat_tokens(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of a conversation, ready for the model's answer. Raises `ValueError` without a chat template, and for
        messages that are none."""
        if self.tokenizer is None or not getattr(self.tokenizer, "chat_template", None):
            raise ValueError(f"{self.name} has no chat template; use generate()")
        _check_conversation(messages)
        text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def get_tokenizer(self) -> Any:
        """The model's tokenizer. Raises `RuntimeError` once it is closed."""
        self.engine._check_open()
        return self.tokenizer

    def close(self) -> None:
        """Free the memory of model and pool."""
        self.engine.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _params_for(
        self, given: SamplingParams | Sequence[SamplingParams] | None, prompts: int
    ) -> Sequence[SamplingParams]:
        if given is None:
            return [self.default_params()] * prompts
        if isinstance(given, SamplingParams):
            return [given] * prompts
        if not isinstance(given, list | tuple) or not all(isinstance(one, SamplingParams) for one in given):
            raise ValueError(
                f"sampling_params is {shown(given)}; allowed: a SamplingParams, or a list of one per prompt"
            )
        if len(given) != prompts:
            raise ValueError(f"{len(given)} sampling_params for {prompts} prompts; give one, or one per prompt")
        return given

    def default_params(self) -> SamplingParams:
        """The checkpoint's own generation defaults, as vLLM takes them."""
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        known = {name: self.generation[name] for name in names if self.generation.get(name) is not None}
        return SamplingParams(**known)

    def _drive(self, names: list[str], use_tqdm: bool) -> list[RequestOutput]:
        wanted, done = set(names), {}
        if not use_tqdm:
            done = {output.request_id: output for output in self.engine.run()}
        else:
            from tqdm import tqdm

            with tqdm(total=len(names), desc="requests", dynamic_ncols=True) as bar:
                for output in self.engine.outputs(ahead=True):
                    done[output.request_id] = output
                    bar.update(output.request_id in wanted)
        return [done[name] if name in done else self.engine.result(name) for name in names]  # else somebody aborted it


def resolve_device(device: str) -> str:
    """`auto` is the GPU where there is one. Raises `ValueError` for a GPU that is not there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch sees no GPU; use device='cpu', or install a CUDA build of torch")
    return device


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, (str, dict)):
        return [prompts]
    if hasattr(prompts, "tolist"):  # an array of NumPy or torch
        prompts = prompts.tolist()
    if isinstance(prompts, bytes | bytearray | Set) or not hasattr(prompts, "__iter__"):
        raise ValueError(f"prompts is {shown(prompts)}; allowed: text, token ids, a prompt dict, or a list of these")
    listed: list[Any] = list(prompts)
    one = bool(listed) and all(hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0 for item in listed)
    return [listed] if one else listed


def _check_conversation(messages: Any) -> None:
    said: Sequence[Any] = messages if isinstance(messages, list | tuple) else ()
    good = all(
        isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
        for message in said
    )
    if not said or not good:
        raise ValueError(f"a conversation is {shown(messages)}; allowed: {_CONVERSATION}")
    try:
        "".join(message["role"] + message["content"] for message in said).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a message is not valid Unicode: {error}") from None


def _content(prompt: Prompt) -> tuple[str | Sequence[int], str | None]:
    """Text or token ids, and the salt, of a prompt in any of its forms."""
    if not isinstance(prompt, dict):
        return prompt, None
    known = ("prompt", "prompt_token_ids", "cache_salt")
    if unknown := [shown(key) for key in prompt if key not in known]:
        raise ValueError(f"a prompt dict has {', '.join(unknown)}; allowed: {', '.join(known)}")
    ids, text = prompt.get("prompt_token_ids"), prompt.get("prompt")
    if ids is None and text is None:
        raise ValueError(
            f"a prompt dict needs 'prompt_token_ids' or 'prompt'; this one has {', '.join(prompt) or 'nothing'}"
        )
    if isinstance(ids, str) or not isinstance(text, str | None):
        raise ValueError(
            f"a prompt dict is {shown(prompt)}; allowed: text as 'prompt', token ids as 'prompt_token_ids'"
        )
    content: str | Sequence[int] = text if ids is None else ids  # type: ignore[assignment]
    return content, prompt.get("cache_salt")
