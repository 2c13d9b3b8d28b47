"""Between the model and the sampler: penalties, biases and minimum lengths, and the log-probabilities users ask for."""

import torch
from torch import Tensor

from minivllm.request import SamplingParams
from minivllm.runtime.ticket import TokenLogprob

LARGEST = 1e30
"""Of a logit that was changed: beyond it, dividing by a small temperature could overflow."""


def reshape(
    logits: Tensor, params: SamplingParams, history: Tensor, prompt_len: int, stop_ids: frozenset[int]
) -> Tensor:
    """One row's logits `[V]` as the sampler should see them; `history: [context]` are the tokens before it.

    Repetition penalty (Keskar et al. 2019) counts prompt and output, presence and frequency penalties the output only, as in
    vLLM. While fewer than `min_tokens` were generated, no end token can be drawn. However large a bias or a penalty is, the
    result is finite, also after the division by a temperature.
    """
    logits = logits.clone()
    vocab = len(logits)
    generated = history[prompt_len:].long()
    if params.repetition_penalty != 1.0:
        seen = history.long().unique()
        score = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = torch.where(score > 0, score / penalty, score * penalty)
    if params.presence_penalty or params.frequency_penalty:
        times = torch.bincount(generated, minlength=vocab)[:vocab]
        logits -= params.frequency_penalty * times + params.presence_penalty * (times > 0)
    if params.logit_bias:
        ids = torch.tensor(list(params.logit_bias), device=logits.device)
        logits[ids] += torch.tensor(list(params.logit_bias.values()), dtype=logits.dtype, device=logits.device)
    logits.clamp_(-LARGEST, LARGEST)  # what is no number stays none, and is reported
    if stop_ids and len(generated) < params.min_tokens:
        logits[torch.tensor(sorted(stop_ids), device=logits.device)] = -torch.inf
    return logits


def logprob(logits: Tensor, token: int, top: int) -> TokenLogprob:
    """The model's own log-probability (before penalties and temperature) of `token`, and of the `top` likeliest ones."""
    scores = logits.float().log_softmax(-1)
    own = scores[token]
    best = scores.topk(min(top, len(scores))) if top else None
    pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else ()
    return TokenLogprob(token, float(own), int((scores > own).sum()) + 1, pairs)
