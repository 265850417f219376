"""What the library's prefix cache has of a prompt, as far as that can be said for certain.

The library finds whole blocks of earlier prompts again and tells nobody. What it must still have
follows from what it was given: it forgets the blocks that were left longest ago, and none while
there are free ones. It is told less than there is: not the blocks of requests that still run, no
block that is not full, and half of the cache at most, since the library's order of forgetting is
not this one to the last block.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

# Nobody can make up two prompts that look the same here, so none is taken for another.
_DIGEST_BYTES = 16


class Prefixes:
    """The blocks that were left, the longest ago first, each by all that comes before it.

    By owner: what somebody else has put there is not told, or counting would tell users of each
    other's prompts.
    """

    def __init__(self, blocks: int, block_tok: int) -> None:
        self._blocks = blocks
        self._block_tok = block_tok
        self._left: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        """How many blocks are remembered."""
        return len(self._left)

    def found_tok(self, owner: str, ids: Sequence[int], held_tok: Iterable[int]) -> int:
        """How many of these tokens need not be computed, while requests hold so many each."""
        self._shrink(held_tok)
        found = 0
        # The last one is always computed: the next token comes of it.
        for block in self._chain(owner, ids[:-1]):
            if block not in self._left:
                break
            self._left.move_to_end(block)
            found += 1
        return found * self._block_tok

    def leave(self, owner: str, ids: Sequence[int], held_tok: Iterable[int]) -> None:
        """A request that has computed these leaves; itself, it is still one of those that hold."""
        for block in self._chain(owner, ids):
            self._left.pop(block, None)
            self._left[block] = None
        self._shrink(held_tok)

    def _shrink(self, held_tok: Iterable[int]) -> None:
        held = sum(-(-tok // self._block_tok) for tok in held_tok)
        while len(self._left) > max(0, self._blocks - held) // 2:
            self._left.popitem(last=False)

    def _chain(self, owner: str, ids: Sequence[int]) -> Iterator[bytes]:
        size = self._block_tok
        before = owner.encode()
        for end in range(size, len(ids) + 1, size):
            tokens = array("q", ids[end - size : end]).tobytes()
            before = blake2b(tokens + before, digest_size=_DIGEST_BYTES).digest()
            yield before
