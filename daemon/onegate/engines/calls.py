"""Questions to the host that are answered once, by number."""

import asyncio
from collections.abc import Callable

from onegate.engines.base import (
    EmbedResult,
    EngineBroke,
    EngineError,
    EngineMalformed,
    EngineRefused,
    EngineUnavailable,
    TokenCount,
)
from onegate.engines.host.wire import (
    CallDone,
    CallFailed,
    CountCall,
    CountResult,
    EmbedCall,
    EmbedResultMsg,
    LoadCall,
    UnloadCall,
)

Question = CountCall | EmbedCall | LoadCall | UnloadCall
Answer = CountResult | EmbedResultMsg | CallDone | CallFailed
Result = TokenCount | EmbedResult | None


class Calls:
    """Open questions. One that nobody waits for any more stays until it is answered."""

    def __init__(self, send: Callable[[Question], None]) -> None:
        self._send = send
        self._open: dict[int, tuple[Question, asyncio.Future[Result]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._open)

    def next(self) -> int:
        """The number of the next question."""
        self._number += 1
        return self._number

    async def ask(self, question: Question) -> Result:
        """Send a question and wait for its answer; raises EngineErrors."""
        self._send(question)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._open[question.call] = (question, answer)
        return await answer

    def tell(self, question: Question) -> None:
        """Send a question whose answer nobody waits for."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        answer.cancel()
        self._open[question.call] = (question, answer)
        self._send(question)

    def answered(self, message: Answer) -> None:
        """An answer came. Raises EngineMalformed for one to another question."""
        question, answer = self._open.pop(message.call, (None, None))
        if question is None or answer is None:
            raise EngineMalformed("the engine answers a question that nobody asked")
        result: Result | EngineError
        match question, message:
            case _, CallFailed():
                result = _failure(message)
            case CountCall(), CountResult():
                result = TokenCount(n_tok=message.n_tok, exact=message.exact)
            case EmbedCall(), EmbedResultMsg():
                result = EmbedResult(vectors=message.vectors, usage=message.usage)
            case LoadCall() | UnloadCall(), CallDone():
                result = None
            case _:
                raise EngineMalformed("the engine answers another question than was asked")
        if answer.done():
            return
        if isinstance(result, EngineError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def lose(self, error: EngineBroke) -> None:
        """The engine is gone; nothing will be answered."""
        lost, self._open = self._open, {}
        for _, answer in lost.values():
            if not answer.done():
                answer.set_exception(type(error)(str(error)))


def _failure(message: CallFailed) -> EngineError:
    match message.code:
        case "invalid" | "unsupported":
            return EngineRefused(message.message, unsupported=message.code == "unsupported")
        case "unavailable":
            return EngineUnavailable(message.message)
        case "broke":
            return EngineBroke(message.message)
        case _:
            raise EngineMalformed(f"a call failed with the unknown code {message.code[:40]!r}")
