"""The part that would be on a GPU: a thread that makes steps, and a process that stands for the
worker and can die."""

import hashlib
import json
import queue
import threading
import time
from collections import deque

from transformers import FIRST_WORD, SPECIALS, WORDS, decode

from tensorrt_llm._base import OPTIONS, note, strict
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.worker import start as start_worker

END = SPECIALS["<|end|>"]
_FAULT_TOK = 2


class Active:
    def __init__(self, output, priority):
        self.output = output
        self.priority = priority
        self.prompt = output.prompt_token_ids
        self.text = decode(self.prompt)
        self.read_tok = 0
        self.said = []
        self.unsent = []

    @property
    def aborted(self):
        return self.output.aborted()

    def next(self):
        """The next token, a function of everything before it."""
        if "[[half]]" in self.text:
            data = "🦊".encode()
            return data[len(self.said) % len(data)]
        salt = len(self.prompt) + len(self.said)
        seen = hashlib.sha256(repr(self.prompt + self.said).encode()).digest()
        if salt and seen[1] % 40 == 0 and self.output._params.end_id == END:
            return END
        return FIRST_WORD + seen[0] % len(WORDS)


class Engine:
    def __init__(self, *, max_batch_size, max_num_tokens, blocks, block_tok, wants_stats):
        self.max_batch_size = max_batch_size
        self.max_num_tokens = max_num_tokens
        self.blocks, self.block_tok = blocks, block_tok
        self.wants_stats = wants_stats
        self.intake = queue.Queue()
        self.waiting = deque()
        self.active = []
        self.stats = queue.Queue()
        self.steps = 0
        self.over = threading.Event()
        self.hung = False
        self.step_ms = OPTIONS.get("step_ms", 1)
        self.worker = None
        if OPTIONS.get("worker", True):
            self.worker = start_worker()
            note("worker", pid=self.worker.pid)
            if OPTIONS.get("dies") == "while it loads":
                self.worker.kill()
                raise RuntimeError("Executor worker died during initialization")
        threading.Thread(target=self.run, name="engine", daemon=True).start()

    def submit(self, output, priority):
        if OPTIONS.get("dies") == "before a token":
            self.worker.kill()
            self.worker.wait()
        self.intake.put(Active(output, priority))

    def abort(self):
        if self.over.is_set():
            raise AttributeError("'NoneType' object has no attribute 'abort_request'")

    def run(self):
        while not self.over.is_set():
            if self.hung or (self.worker is not None and self.worker.poll() is not None):
                time.sleep(0.01)
                continue
            self.drain()
            if not self.active:
                time.sleep(0.001)
                continue
            try:
                self.step()
            except RuntimeError as error:
                note("delivery failed", text=str(error))
                self.hung = True

    def drain(self):
        while not self.intake.empty():
            self.waiting.append(self.intake.get())
        # One that is given up while it waits is gone without a word.
        for request in [r for r in self.waiting if r.aborted]:
            note("dropped while queued", id=request.output.request_id)
            self.waiting.remove(request)
        order = sorted(self.waiting, key=lambda r: -r.priority)
        while order and len(self.active) < self.max_batch_size:
            if self.held() + self.needs(order[0]) > self.blocks:
                break
            request = order.pop(0)
            self.waiting.remove(request)
            self.active.append(request)

    def needs(self, request):
        """Blocks for the longest answer there may be."""
        tok = len(request.prompt) + request.output._params.max_tokens
        return -(-tok // self.block_tok)

    def held(self):
        return sum(self.needs(request) for request in self.active)

    def step(self):
        began = time.monotonic()
        slow = any("[[slow]]" in r.text for r in self.active)
        time.sleep((50 if slow else self.step_ms) / 1000)
        room_tok = self.max_num_tokens
        prompt_tok = answers = 0
        for request in list(self.active):
            if request.aborted:
                self.finish(request, "cancelled")
                continue
            left_tok = len(request.prompt) - request.read_tok
            if left_tok:
                if "[[die reading]]" in request.text:
                    self.worker.kill()
                    self.hung = True
                    return
                took_tok = min(left_tok, room_tok)
                request.read_tok += took_tok
                room_tok -= took_tok
                prompt_tok += took_tok
                if request.read_tok < len(request.prompt):
                    continue
            else:
                answers += 1
                room_tok -= 1
            for _ in range(2 if "[[pairs]]" in request.text else 1):
                if request in self.active and not OPTIONS.get("no_token"):
                    self.say(request)
            if request in self.active and request.unsent and request.output._streaming:
                self.send(request, None)
        self.steps += 1
        note_ms = (time.monotonic() - began) * 1000
        if prompt_tok > 64:
            time.sleep(0.02)  # reading takes its time, too
        if self.wants_stats and not OPTIONS.get("mute"):
            self.stats.put(self.entry(note_ms, prompt_tok, answers))

    def say(self, request):
        if len(request.said) == _FAULT_TOK and self.fault(request):
            return
        token = request.next()
        request.said.append(token)
        request.unsent.append(token)
        if token == request.output._params.end_id:
            self.finish(request, "stop")
        elif len(request.said) == request.output._params.max_tokens:
            self.finish(request, "length")

    def fault(self, request):
        if "[[error]]" in request.text:
            self.active.remove(request)
            request.output._deliver(RequestError("the engine has no more ink"))
        elif "[[serious]]" in request.text:
            self.active.remove(request)
            request.output._deliver(RuntimeError("CUDA error: an illegal memory access"))
        elif "[[timeout]]" in request.text:
            self.finish(request, "timeout")
        elif "[[hang]]" in request.text:
            self.hung = True
        elif "[[die]]" in request.text:
            self.worker.kill()
            self.hung = True
        else:
            return False
        return True

    def finish(self, request, reason):
        self.active.remove(request)
        self.send(request, reason)

    def send(self, request, reason):
        ids, request.unsent = request.unsent, []
        request.output._deliver((ids, reason, len(request.prompt) // 64 * 32 if reason else 0))

    def entry(self, latency_ms, prompt_tok, answers):
        used = self.held()
        return json.dumps(
            {
                "iter": self.steps,
                "iterLatencyMS": latency_ms,
                "numActiveRequests": len(self.active),
                "numQueuedRequests": 0,
                "cpuMemUsage": 0,
                "pinnedMemUsage": 0,
                "gpuMemUsage": 4 << 30,
                "kvCacheStats": {
                    "maxNumBlocks": self.blocks,
                    "freeNumBlocks": self.blocks - used,
                    "usedNumBlocks": used,
                    "tokensPerBlock": self.block_tok,
                },
                "inflightBatchingStats": {
                    "numScheduledRequests": len(self.active),
                    "numContextRequests": 1 if prompt_tok else 0,
                    "numGenRequests": answers,
                    "numPausedRequests": 0,
                    "numCtxTokens": prompt_tok,
                },
                "staticBatchingStats": None,
                "specDecodingStats": None,
            }
        )

    def drained(self, timeout):
        strict(not self.over.is_set(), "statistics after the shutdown")
        found = []
        try:
            found.append(self.stats.get(timeout=timeout))
            while True:
                found.append(self.stats.get_nowait())
        except queue.Empty:
            return found
