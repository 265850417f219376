"""Who was served how much: the rule of fairness in its plainest form."""

from onegate.admission import fairness


class Served:
    """What one name was served; of a class its principals, of a principal its flows.

    A part's turn is what it was served beyond the tolerance; whoever comes back begins no lower
    than the turn of the last one that was chosen. What it was charged for nothing counts against
    what it is charged next; whoever comes back has of that no more than he is above the level.
    """

    def __init__(self, tok: int = 0) -> None:
        self.tok = tok
        self.credit_tok = 0
        self.live = 0
        self.level = 0
        self.parts: dict[str, Served] = {}

    def turn_of(self, name: str) -> int:
        return max(self.parts[name].tok - fairness.TOLERANCE_TOK, self.level)

    def turns(self, principal: str, flow: str) -> tuple[int, int]:
        return self.turn_of(principal), self.parts[principal].turn_of(flow)

    def toks(self, principal: str, flow: str) -> tuple[int, int]:
        found = self.parts[principal]
        return found.tok, found.parts[flow].tok

    def enter(self, *names: str) -> None:
        if not names:
            return
        name, *rest = names
        part = self.parts.get(name)
        if part is None or (not part.live and part.tok <= self.level):
            part = self.parts[name] = Served(self.level)
        elif not part.live:
            part.credit_tok = min(part.credit_tok, part.tok - self.level)
        part.live += 1
        part.enter(*rest)

    def leave(self, *names: str) -> None:
        if names:
            self.parts[names[0]].live -= 1
            self.parts[names[0]].leave(*names[1:])

    def chosen(self, *names: str) -> None:
        if names:
            self.parts[names[0]].chosen(*names[1:])
            self.level = self.turn_of(names[0])

    def charge(self, tok: int, *names: str) -> None:
        if names:
            part = self.parts[names[0]]
            free = min(tok, part.credit_tok)
            part.credit_tok -= free
            part.tok += tok - free
            part.charge(tok, *names[1:])

    def give_credit(self, tok: int, *names: str) -> None:
        if names:
            part = self.parts[names[0]]
            part.credit_tok += tok
            part.give_credit(tok, *names[1:])
