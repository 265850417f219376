"""What of an output's text may be shown: not before a stop string is ruled out, and only once."""

from collections.abc import Sequence


class StopScanner:
    """Passes text on, but holds back an end that may still become a stop string.

    What has been passed on after some text depends on the text alone, not on how it was cut into
    pieces. So a run that is resumed from its tokens goes on exactly where its text had ended.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """Take the next piece and return what may be shown; after a match always nothing."""
        if self.matched:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.matched = True
            self._held = ""
            # The one that is complete first, as if the text had come by characters.
            return text[: min(found)[1]]
        keep = self._possible(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The output ended of itself: what was held back is text after all."""
        held, self._held = self._held, ""
        return held

    def _possible(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for size in range(longest, 0, -1):
            end = text[len(text) - size :]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0


class ShownText:
    """Leaves out the characters that a reader has seen from an earlier run."""

    def __init__(self, shown_chars: int = 0) -> None:
        self._skip_chars = shown_chars
        self._pending = ""

    def prime(self, text: str) -> None:
        """Text of the earlier run; what of it was not shown goes out with the next piece."""
        self._pending = text

    def feed(self, text: str) -> str:
        """The next piece, without what has been shown."""
        text = self._pending + text
        self._pending = ""
        skipped = min(self._skip_chars, len(text))
        self._skip_chars -= skipped
        return text[skipped:]
