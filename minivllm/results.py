"""What has come out so far: text, log-probabilities and finished outputs, kept apart from the scheduling."""

from collections import OrderedDict
from collections.abc import Mapping

from minivllm.core.plan import Plan
from minivllm.detokenizer import Detokenizer, Tokenizer
from minivllm.output import CompletionOutput, Logprob, Logprobs, RequestOutput
from minivllm.request import Request, Status
from minivllm.runtime.ticket import StepResult, TokenLogprob

CONTEXT = 5
"""Prompt tokens that a reader starts with: a tokenizer may drop the space in front of a text's first word."""
MAX_KEPT = 1024
"""Finished outputs that stay readable through `Engine.result`."""


class Results:
    """Per-request text and outputs. Requests forked from one another (n > 1) come out as one `RequestOutput`."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.watched: set[str] = set()  # requests whose text must be read at every token: they have stop strings
        self._prompts: dict[str, str | None] = {}
        self._readers: dict[str, Detokenizer] = {}
        self._logprobs: dict[str, dict[int, TokenLogprob]] = {}  # by place in the output
        self._prompt_logprobs: dict[str, dict[int, TokenLogprob]] = {}
        self._groups: dict[str, list[Request]] = {}
        self._done: OrderedDict[str, RequestOutput] = OrderedDict()

    def track(self, request: Request, prompt: str | None = None) -> None:
        """A request was accepted, with the text it came from if there was one."""
        self._prompts[request.id] = prompt
        if request.params.stop_strings and self.tokenizer is not None:
            self.watched.add(request.id)
        self._groups.setdefault(request.group or request.id, []).append(request)  # last: from now on it is known

    def tracked(self) -> set[str]:
        """The ids of all members of open groups."""
        return {request.id for members in self._groups.values() for request in members}

    def purge(self) -> None:
        """Drop what is kept of requests that no open group knows: an interrupt came while they were tracked or forgotten."""
        known = self.tracked()
        self.watched &= known
        for kept in (self._readers, self._logprobs, self._prompt_logprobs, self._prompts):
            for name in kept.keys() - known:
                del kept[name]

    def forget(self, name: str) -> None:
        """Nothing is kept of a request, which was never really there."""
        self.watched.discard(name)
        for kept in (self._groups, self._readers, self._logprobs, self._prompt_logprobs, self._prompts):
            kept.pop(name, None)

    def book(self, plan: Plan, result: StepResult, live: Mapping[str, Request]) -> None:
        """Keep the log-probabilities of a step, before its tokens are appended: an interrupt may come in between.

        Rows of another epoch are left out, as their tokens will be: the request ended, or computes them again.
        """
        for row in plan.rows:
            name = row.request_id
            request = live.get(name)
            if request is None or request.epoch != row.epoch:
                continue
            if name in result.logprobs:
                self._logprobs.setdefault(name, {})[len(request.output_tokens)] = result.logprobs[name]
            if name in result.prompt_logprobs:
                self._prompt_logprobs.setdefault(name, {}).update(result.prompt_logprobs[name])

    def inherit(self, parent: Request, child: Request) -> None:
        """A fork has its parent's log-probabilities as far as it has its tokens."""
        first = parent.group or parent.id  # of several samples the first one has those of the prompt
        self._logprobs[child.id] = dict(self._logprobs.get(parent.id, {}))
        self._prompt_logprobs[child.id] = dict(self._prompt_logprobs.get(first, {}))

    def read(self, request: Request) -> str:
        """Text that has become visible since the last call; `stopped(request)` says whether a stop string ended it."""
        reader = self.reader(request)
        if reader is None:
            return ""
        self.feed(request, reader)
        if request.status is Status.FINISHED:
            reader.finish()
        return reader.take()

    def stops(self, request: Request, last: bool = True) -> str | None:
        """The stop string in a request's text, now that its last token has come. What was read for it stays to be read."""
        reader = self.reader(request)
        if reader is None:
            return None
        self.feed(request, reader)
        reader.finish() if last else reader.settle()
        return reader.stopped

    def feed(self, request: Request, reader: Detokenizer) -> None:
        """Give a reader the tokens of its request that it lacks."""
        tokens = request.output_tokens
        if request.finish_reason == "stop" and not isinstance(request.stop_reason, str):
            tokens = tokens[:-1]  # the end token is an id of the output, never part of its text
        for token in tokens[reader.seen :]:
            if reader.stopped is None:
                reader.add(token)

    def reader(self, request: Request) -> Detokenizer | None:
        """What turns a request's tokens into text; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        if request.id not in self._readers:
            params = request.params
            context = request.tokens[: request.prompt_len][-CONTEXT:]
            self._readers[request.id] = Detokenizer(self.tokenizer, params.stop_strings, params.min_tokens, context)
        return self._readers[request.id]

    def stopped(self, request: Request) -> str | None:
        """The stop string found in a request's text, if any."""
        reader = self._readers.get(request.id)
        return reader.stopped if reader else None

    def holds(self, request_id: str) -> bool:
        """Whether the id belongs to a request, or to a sample of one, whose output is still to come."""
        return request_id in self._prompts

    def samples(self, request_id: str) -> list[Request]:
        """The samples of this request that have been started, while some of them are still to end; else none."""
        return self._groups.get(request_id, [])

    def ended(self) -> list[Request]:
        """Members of open groups that have ended: their groups wait for others, or an interrupt kept them open."""
        return [r for members in self._groups.values() for r in members if r.status is Status.FINISHED]

    def finish(self, request: Request) -> RequestOutput | None:
        """A request ended; its group's output, once every member of the group has ended."""
        self.watched.discard(request.id)
        group = request.group or request.id
        members = self._groups.get(group)
        if members is None:  # the group came out with another member that ended in the same step
            return None
        if len(members) < members[0].params.n and members[0].finish_reason != "abort":
            return None  # its forks are still to come
        if any(member.status is not Status.FINISHED for member in members):
            return None
        output = self._done[group] = self.output(group)  # kept before anything is dropped: an interrupt may come
        del self._groups[group]
        for member in members:
            for kept in (self._readers, self._logprobs, self._prompt_logprobs, self._prompts):
                kept.pop(member.id, None)
        while len(self._done) > MAX_KEPT:
            self._done.popitem(last=False)
        return output

    def output(self, request_id: str) -> RequestOutput:
        """The output of a live or lately finished request. Raises `KeyError` naming the id."""
        members = self._groups.get(request_id)  # looked up first: an id may come again after its request has ended
        if members is None:
            if request_id in self._done:
                return self._done[request_id]
            raise KeyError(f"no request {request_id!r}: it was never added, or ended more than {MAX_KEPT} requests ago")
        first = members[0]
        prompt_logprobs = self._prompt_logprobs.get(first.id, {})
        return RequestOutput(
            request_id=request_id,
            prompt=self._prompts[first.id],
            prompt_token_ids=first.tokens[: first.prompt_len],
            outputs=[self._completion(index, member) for index, member in enumerate(members)],
            finished=all(member.status is Status.FINISHED for member in members),
            num_cached_tokens=first.num_cached or 0,
            prompt_logprobs=None
            if first.params.prompt_logprobs is None
            else [
                self._by_id(prompt_logprobs[position]) if position in prompt_logprobs else None
                for position in range(first.prompt_len)
            ],
            num_preemptions=sum(member.num_preemptions for member in members),
        )

    def _completion(self, index: int, request: Request) -> CompletionOutput:
        self.read(request)
        reader = self._readers.get(request.id)
        entries, known = None, self._logprobs.get(request.id, {})
        if request.params.logprobs is not None:
            entries = [known[at] for at in range(len(request.output_tokens)) if at in known]  # a simulation has none
        return CompletionOutput(
            index=index,
            text=reader.text if reader else "",
            token_ids=request.output_tokens,
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
            cumulative_logprob=None if entries is None else sum(entry.logprob for entry in entries),
            logprobs=None if entries is None else [self._by_id(entry) for entry in entries],
        )

    def _by_id(self, entry: TokenLogprob) -> Logprobs:
        """One position's log-probabilities as vLLM hands them out."""
        ranked = {token: (value, place) for place, (token, value) in enumerate(entry.top, 1)}
        found = {entry.token: (entry.logprob, entry.rank)} | ranked
        return {token: Logprob(value, rank, self._piece(token)) for token, (value, rank) in found.items()}

    def _piece(self, token: int) -> str | None:
        """One token as text, special ones too; None without a tokenizer."""
        return None if self.tokenizer is None else self.tokenizer.decode([token], skip_special_tokens=False)
