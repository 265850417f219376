"""PROTOCOL.md cannot rot: its tables are compared with the types, its examples are executed.

Field names, types and defaults in the tables are generated; the last column is written by hand and
kept. `ONEGATE_ACCEPT=1 pytest tests/wire` writes the generated parts and the hexadecimal anew.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect, msgpack

import onegate.protocol
from onegate.config.gate import MIB, GateConfig
from onegate.protocol import decode, features, json_tree, locate
from onegate.protocol.address import SYSTEM_SOCKET, user_sockets
from onegate.protocol.connection import (
    ClientConnection,
    HelloReceived,
    InvalidRequest,
    Offence,
    RequestReceived,
    ServerConnection,
)
from onegate.protocol.errors import REASONS, NoticeCode, Reason
from onegate.protocol.exchange import EXCHANGES, State
from onegate.protocol.framing import DEFAULT_MAX_FRAME_BYTES, frame
from onegate.protocol.messages import ClientMessage, DaemonMessage, Failed, Welcome
from onegate.server.session import LINGER_S

GATE = GateConfig()
SPEC = Path(onegate.protocol.__file__).parent / "PROTOCOL.md"
ACCEPT = os.environ.get("ONEGATE_ACCEPT") == "1"
TABLE = re.compile(r"<!-- (?P<what>[\w: ]+) -->\n(?P<rows>(?:\|.*\n)+)")
EXAMPLE = re.compile(
    r"```json (?P<side>client|daemon)(?: (?P<fate>\w+))?\n(?P<text>.*?)\n```\n"
    r"```hex\n(?P<hex>.*?)```",
    re.DOTALL,
)


def spec() -> str:
    return SPEC.read_text(encoding="utf-8")


def anchors() -> dict[str, str]:
    """Headings and where links find them: the second of the same letters gets `-1`."""
    found: dict[str, str] = {}
    seen: list[str] = []
    for heading in re.findall(r"^#+ .*$", spec(), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        found[heading] = f"{slug}-{seen.count(slug)}" if slug in seen else slug
        seen.append(slug)
    return found


# --- tables -----------------------------------------------------------------------------------


def bounds(low: Any, high: Any, above: Any = None) -> str:
    if low is not None and high is not None:
        return f" {low:g}..{high:g}" if isinstance(low, float) else f" {low}..{high}"
    parts = [f"> {above:g}"] if above is not None else []
    parts += [f"≥ {low}"] if low is not None else []
    parts += [f"≤ {high:g}"] if high is not None else []
    return " " + ", ".join(parts) if parts else ""


def part(node: inspect.Type) -> str:
    """The type of what a list or a map holds, in parentheses where it could be read otherwise."""
    text = described(node)
    return f"({text})" if " or " in text else text


def described(node: inspect.Type) -> str:
    """A type as the tables say it."""
    match node:
        case inspect.Metadata(type=inner):
            return described(inner)
        case inspect.UnionType(types=types):
            return " or ".join(
                described(t) for t in sorted(types, key=lambda t: isinstance(t, inspect.NoneType))
            )
        case inspect.NoneType():
            return "nil"
        case inspect.BoolType():
            return "bool"
        case inspect.IntType(ge=0, le=0xFFFFFFFF):
            return "u32"
        case inspect.IntType(ge=low, le=high):
            return "int" + bounds(low, high)
        case inspect.FloatType(ge=low, le=high, gt=above):
            return "float" + bounds(low, high, above)
        case inspect.StrType(pattern=None, min_length=low, max_length=high):
            return "str" if high is None else f"str of {low or 0}..{high}"
        case inspect.StrType(pattern=pattern):
            return f"str like `{pattern}`"
        case inspect.BytesType():
            return "bin"
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.EnumType(cls=cls):
            return ", ".join(f"`{member.value}`" for member in cls) + " (open)"
        case inspect.ListType(item_type=item, min_length=low, max_length=high):
            size = f"{low or 0}..{high} of " if high is not None else "of "
            return f"array {size}{part(item)}"
        case inspect.DictType(value_type=inspect.AnyType()):
            return "map, as in JSON"
        case inspect.DictType(value_type=value):
            return f"map from str to {part(value)}"
        case inspect.StructType(cls=cls):
            return f"[`{cls.__name__}`](#{anchors()['### ' + cls.__name__]})"
    raise NotImplementedError(node)


def default_of(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        empty = msgspec.to_builtins(field.default_factory())
        return f"`{json.dumps(empty)}`"
    if field.default in (None, msgspec.NODEFAULT):
        return "–"
    return f"`{json.dumps(msgspec.to_builtins(field.default))}`"


def struct_rows(node: inspect.StructType) -> dict[str, list[str]]:
    rows = {}
    if node.tag is not None and node.tag_field != "t":
        rows[str(node.tag_field)] = [f"`{node.tag}`", "required"]
    for field in node.fields:
        rows[field.encode_name] = [described(field.type), default_of(field)]
    return rows


def structs() -> dict[str, inspect.StructType]:
    """All structs of the wire, messages by tag and the others by name."""
    found: dict[str, inspect.StructType] = {}

    def walk(node: inspect.Type) -> None:
        match node:
            case inspect.StructType(cls=cls, tag=tag, tag_field=tag_field, fields=fields):
                name = str(tag) if tag_field == "t" else cls.__name__
                if name not in found:
                    found[name] = node
                    for field in fields:
                        walk(field.type)
            case inspect.UnionType(types=types):
                for inner in types:
                    walk(inner)
            case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
                walk(inner)
            case inspect.Metadata(type=inner):
                walk(inner)

    for kind in (*get_args(ClientMessage), *get_args(DaemonMessage)):
        walk(inspect.type_info(kind))
    return found


def feature_rows() -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {features.V1: ["all others"]}
    for kind, feature in sorted(features.FEATURE_OF.items(), key=lambda item: item[1]):
        verb = f"`{kind.__struct_config__.tag}`"
        rows[feature] = [f"{rows[feature][0]}, {verb}" if feature in rows else verb]
    return rows


def generated(what: str) -> tuple[list[str], dict[str, list[str]]]:
    """The head and, per first cell, the generated cells of a table."""
    yes = {True: "yes", False: "no"}
    if what.startswith("fields: "):
        head = ["field", "type", "default", "meaning"]
        return head, struct_rows(structs()[what.removeprefix("fields: ")])
    if what == "reasons":
        return ["reason", "HTTP", "retryable", "not now", "meaning"], {
            reason.value: [str(info.http_status), yes[info.retryable], yes[info.backpressure]]
            for reason, info in REASONS.items()
        }
    if what == "notices":
        return ["code", "meaning"], {code.value: [] for code in NoticeCode}
    if what == "features":
        return ["feature", "verbs"], feature_rows()
    raise NotImplementedError(what)


def table(what: str, old_rows: str) -> str:
    """The table with generated cells and the meanings that it had."""
    head, rows = generated(what)
    meanings = {}
    for line in old_rows.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        meanings[cells[0].strip("`")] = cells[-1]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, cells in rows.items():
        if len(cells) + 1 < len(head):
            cells = [*cells, meanings.get(name, "")]
        lines.append("| " + " | ".join([f"`{name}`", *cells]).rstrip() + " |")
    return "\n".join(lines) + "\n"


def test_tables_say_what_the_types_say() -> None:
    def renewed(match: re.Match[str]) -> str:
        return f"<!-- {match['what']} -->\n{table(match['what'], match['rows'])}"

    text = TABLE.sub(renewed, spec())
    if ACCEPT:
        SPEC.write_text(text, encoding="utf-8")
    assert spec() == text


def test_every_message_and_shape_has_its_table_and_heading() -> None:
    marked = [match["what"] for match in TABLE.finditer(spec())]
    assert sorted(marked) == sorted(
        [*(f"fields: {name}" for name in structs()), "reasons", "features", "notices"]
    )
    headings = set(re.findall(r"^### (\w+)$", spec(), re.MULTILINE))
    assert structs().keys() <= headings


def test_every_reason_and_notice_says_what_it_means() -> None:
    for match in TABLE.finditer(spec()):
        if match["what"] in ("reasons", "notices"):
            assert all(line.split("|")[-2].strip() for line in match["rows"].splitlines())


def test_every_request_has_its_row_of_answers() -> None:
    section = spec().partition("| request | answers | end |")[2].partition("\n\n")[0]
    for kind, transitions in EXCHANGES.items():
        (row,) = [r for r in section.splitlines() if f"[`{kind.__struct_config__.tag}`]" in r]
        for (_, answer), state in transitions.items():
            if answer is not Failed:
                _, answers, end = row.strip("|").split("|")
                cell = end if state is State.OVER else answers
                assert f"`{answer.__struct_config__.tag}`" in cell


def test_links_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#([^)]*)\)", spec())) <= set(anchors().values())


def test_headings_that_are_linked_to_are_the_first_of_their_letters() -> None:
    """Links written by hand mean sections and messages, which come before the shapes."""
    found = anchors()
    assert found["## Limits"] == "limits"
    assert found["### usage"] == "usage" != found["### Usage"]
    assert found["### status"] == "status" != found["### Status"]


@pytest.mark.parametrize(
    "said",
    [
        SYSTEM_SOCKET,
        "ONEGATE_SOCKET",
        *(
            f"`{path}`"
            for path in user_sockets(
                {name: f"/${name}" for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME")}
            )
        ),
        f"{DEFAULT_MAX_FRAME_BYTES} (8 MiB)",
        f"| {locate.MAX_FIELDS} |",
        f"| {decode.JSON_BYTES['tools']}, {decode.JSON_BYTES['params']} |",
        f"{json_tree.MAX_JSON_DEPTH} levels, {json_tree.MAX_JSON_NODES} values",
        f"| live requests per connection | {GATE.in_flight_per_session} |",
        f"within {GATE.hello_timeout_s:g} s of connecting",
        f"for a connection | {GATE.write_buffer_max_bytes // MIB} MiB |",
        f"{GATE.unread_bytes_per_principal // MIB} MiB, {GATE.unread_bytes // MIB} MiB |",
        f"can be read for {LINGER_S:g} s",
    ],
)
def test_numbers_and_places_are_the_real_ones(said: str) -> None:
    assert said.replace("`/$", "`$") in spec()


# --- examples ---------------------------------------------------------------------------------


@dataclass
class Step:
    """One block of an example: a message in JSON, and its frame."""

    side: str
    fate: str | None
    message: Any
    data: bytes


def hexadecimal(data: bytes) -> str:
    """Sixteen bytes a line."""
    return "".join(data[i : i + 16].hex(" ") + "\n" for i in range(0, len(data), 16))


def encoded(side: str, text: str) -> bytes:
    """The frame of a message in JSON, by way of the typed message where there is one."""
    union = ClientMessage if side == "client" else DaemonMessage
    try:
        return frame(msgpack.encode(msgspec.json.decode(text, type=union)))
    except msgspec.ValidationError:
        return frame(msgpack.encode(json.loads(text)))


def examples() -> Iterator[list[Step]]:
    for section in spec().split("<!-- example -->")[1:]:
        yield [
            Step(m["side"], m["fate"], json.loads(m["text"]), bytes.fromhex(m["hex"]))
            for m in EXAMPLE.finditer(section)
        ]


def test_hexadecimal_is_the_frame_of_the_json() -> None:
    def renewed(match: re.Match[str]) -> str:
        old = match[0]
        data = hexadecimal(encoded(match["side"], match["text"]))
        return old[: match.start("hex") - match.start()] + data + "```"

    text = EXAMPLE.sub(renewed, spec())
    if ACCEPT:
        SPEC.write_text(text, encoding="utf-8")
    assert spec() == text
    for steps in examples():
        for step in steps:
            assert msgpack.decode(step.data[4:]) == step.message


def test_no_block_of_an_example_is_left_out() -> None:
    n_steps = sum(len(steps) for steps in examples())
    assert spec().count("```json ") == spec().count("```hex") == n_steps
    assert n_steps > 20


@pytest.mark.parametrize("n", range(spec().count("<!-- example -->")))
def test_examples_run(n: int) -> None:
    """Both ends take every frame, in this order."""
    steps = list(examples())[n]
    client, server = ClientConnection(), ServerConnection()
    for step in steps:
        if step.side == "daemon":
            message = msgspec.convert(step.message, type=DaemonMessage)
            if isinstance(message, Welcome):
                assert set(message.features) <= server.features
            assert server.send(message) == step.data
            assert client.receive(step.data) == [message]
        elif step.fate == "protocol":
            assert server.receive(step.data) == [Offence(_answer(steps, step)["message"])]
        elif step.fate == "invalid":
            (event,) = server.receive(step.data)
            answer = _answer(steps, step)
            assert isinstance(event, InvalidRequest)
            assert (event.id, event.reason, event.path, event.message) == (
                answer["id"],
                Reason(answer["reason"]),
                answer["path"],
                answer["message"],
            )
            # A client of this package would never send it; its id is live all the same.
            client.send(msgspec.convert({**step.message, "params": {}}, type=ClientMessage))
        else:
            message = msgspec.convert(step.message, type=ClientMessage)
            assert client.send(message) == step.data
            (event,) = server.receive(step.data)
            assert isinstance(event, HelloReceived | RequestReceived)
            assert event.message == message


def _answer(steps: list[Step], step: Step) -> Any:
    return steps[steps.index(step) + 1].message
