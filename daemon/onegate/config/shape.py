"""What a key allows, read off its type once: for error messages and for the reference page."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct, structs

# In a file `none` stands for "no value": TOML has no null, and leaving a key out means its default.
NONE_WORD = "none"


class Shape:
    """The type of one key, taken apart. `optional`: the word `none` is allowed."""

    def __init__(self, annotation: Any) -> None:
        self.metas: list[Meta] = []
        self.optional = False
        self.base: Any = self._peel(annotation)

    def _peel(self, annotation: Any) -> Any:
        origin = get_origin(annotation)
        if origin is Annotated:
            inner = self._peel(get_args(annotation)[0])
            self.metas.extend(m for m in annotation.__metadata__ if isinstance(m, Meta))
            return inner
        if origin in (Union, UnionType):
            present = [part for part in get_args(annotation) if part is not NoneType]
            if len(present) != 1:
                raise TypeError(f"a key has one type, or one and None: {annotation}")
            self.optional = True
            return self._peel(present[0])
        return annotation

    @property
    def table(self) -> type[Struct] | None:
        """The struct, where the key is a table."""
        return self.base if isinstance(self.base, type) and issubclass(self.base, Struct) else None

    @property
    def tables(self) -> type[Struct] | None:
        """The struct of each entry, where the key is an array of tables."""
        if get_origin(self.base) is not tuple:
            return None
        entry = get_args(self.base)[0]
        return entry if isinstance(entry, type) and issubclass(entry, Struct) else None

    def _last(self, attribute: str) -> Any:
        found = [value for meta in self.metas if (value := getattr(meta, attribute)) is not None]
        return found[-1] if found else None

    def extra(self, key: str) -> Any:
        found = [meta.extra[key] for meta in self.metas if meta.extra and key in meta.extra]
        return found[-1] if found else None

    @property
    def reason(self) -> str:
        return self._last("description") or ""

    def allowed(self) -> str:
        """One phrase: `an integer from 1 to 65536, or "none"`."""
        text = self._allowed()
        return f'{text}, or "{NONE_WORD}"' if self.optional else text

    def _allowed(self) -> str:
        if (form := self.extra("form")) is not None:
            return str(form)
        if get_origin(self.base) is Literal:
            return "one of " + ", ".join(f'"{word}"' for word in get_args(self.base))
        if self.base is bool:
            return "true or false"
        if self.base in (int, float):
            noun = "an integer" if self.base is int else "a number"
            unit = f" {unit}" if (unit := self.extra("unit")) else ""
            high = _plain(self._last("le"))
            if (above := self._last("gt")) is not None:
                return f"{noun} above {_plain(above)}, at most {high}{unit}"
            return f"{noun} from {_plain(self._last('ge'))} to {high}{unit}"
        if self.table is not None:
            return "a table"
        if self.tables is not None:
            return "an array of tables"
        return "text"


def _plain(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def shapes(kind: type[Struct]) -> dict[str, tuple[structs.FieldInfo, Shape]]:
    """Every key of a table, by the name it has in the file."""
    return {f.encode_name: (f, Shape(f.type)) for f in structs.fields(kind)}
