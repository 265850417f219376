// What PROTOCOL.md says, as data: its tables, its examples, and a check of messages against both.

import { readFileSync } from 'node:fs';

/** The tables and examples of the page at `path`. Throws where the page cannot be followed. */
export function readSpec(path) {
  const text = readFileSync(path, 'utf8');
  const shapes = new Map();
  for (const match of text.matchAll(/<!-- fields: (\w+) -->\n((?:\|.*\n)+)/g)) {
    shapes.set(match[1], match[2].trim().split('\n').slice(2).map(readField));
  }
  const [messages, shapesText] = text.split(/^## Shapes$/m);
  const [before, fromDaemon] = messages.split(/^## Daemon to client$/m);
  return {
    shapes,
    clientTags: tags(before.split(/^## Client to daemon$/m)[1]),
    daemonTags: tags(fromDaemon),
    statusShapes: tags(shapesText).filter((name) => /Status$|^Quantiles$/.test(name)),
    features: firstColumns(text, 'features').map(([name, verbs]) => [words(name)[0], words(verbs)]),
    reasons: firstColumns(text, 'reasons').map(([reason, , retryable]) => [
      words(reason)[0],
      retryable.trim() === 'yes',
    ]),
    examples: readExamples(text),
  };
}

const tags = (text) => [...text.matchAll(/<!-- fields: (\w+) -->/g)].map((match) => match[1]);
const words = (text) => [...text.matchAll(/`([^`]*)`/g)].map((match) => match[1]);

function firstColumns(text, name) {
  const table = text.match(new RegExp(`<!-- ${name} -->\\n((?:\\|.*\\n)+)`))[1];
  return table
    .trim()
    .split('\n')
    .slice(2)
    .map((row) => row.split('|').slice(1, -1));
}

function readField(row) {
  const [name, type, value] = row
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
  return { name: words(name)[0], required: value === 'required', type: readType(type) };
}

function readExamples(text) {
  return text
    .split(/^<!-- example -->$/m)
    .slice(1)
    .map((section) => {
      const body = section.split(/^#{2,3} /m)[0];
      const pairs = [...body.matchAll(/```json (.*)\n(.*)\n```\n```hex\n([\s\S]*?)```/g)];
      const blocks = body.match(/```json/g).length;
      if (pairs.length !== blocks) throw new Error('an example without the hex of its frame');
      return pairs.map(([, info, json, hex]) => ({
        sender: info.split(' ')[0],
        answer: info.split(' ')[1] ?? null,
        message: JSON.parse(json),
        bytes: Buffer.from(hex.replace(/\s+/g, ''), 'hex'),
      }));
    });
}

// --- Types -------------------------------------------------------------------------------------

function readType(text) {
  const nil = text.endsWith(' or nil');
  const rest = nil ? text.slice(0, -' or nil'.length) : text;
  const list = rest.match(/^(.*?)\b(array(?: (\d+)\.\.(\d+))? of )(.*)$/);
  if (list) {
    const [, before, , least, most, element] = list;
    const array = { kind: 'array', least, most, element: readType(bare(element)) };
    return union([...alternatives(before.replace(/ or $/, '')), array], nil);
  }
  return union(alternatives(rest), nil);
}

/** What stands in parentheses is about the elements alone. */
const bare = (text) => text.replace(/^\((.*)\)$/, '$1');

function union(kinds, nil) {
  if (kinds.length === 0) throw new Error('a field without a type');
  return { kinds, nil };
}

function alternatives(text) {
  if (text === '') return [];
  const values = text.match(/^((?:`[\w-]+`(?:, )?)+)( \(open\))?(?: or (.*))?$/);
  if (values) {
    const kind = { kind: 'set', values: words(values[1]), open: values[2] !== undefined };
    return [kind, ...alternatives(values[3] ?? '')];
  }
  return text
    .split(' or ')
    .flatMap((part) =>
      part.startsWith('`')
        ? [{ kind: 'set', values: words(part), open: false }]
        : [readScalar(part)],
    );
}

function readScalar(text) {
  let match;
  if ((match = text.match(/^\[`(\w+)`\]/))) return { kind: 'shape', name: match[1] };
  if ((match = text.match(/^map from str to (.*)$/))) {
    return { kind: 'dict', element: readType(bare(match[1])) };
  }
  if (text === 'map, as in JSON') return { kind: 'json' };
  if ((match = text.match(/^str like `(.*)`$/))) return { kind: 'str' };
  if ((match = text.match(/^str(?: of (\d+)\.\.(\d+))?$/))) {
    return { kind: 'str', least: match[1], most: match[2] };
  }
  if (text === 'bool' || text === 'bin') return { kind: text };
  if (text === 'u32') return { kind: 'int', least: 0, most: 2 ** 32 - 1 };
  if ((match = text.match(/^(int|float)(.*)$/))) return { kind: match[1], ...range(match[2]) };
  throw new Error(`a type that this reader does not know: ${text}`);
}

function range(text) {
  const match = text.match(/^ (-?\d+)\.\.(-?\d+)$/);
  if (match) return { least: Number(match[1]), most: Number(match[2]) };
  const least = text.match(/[≥>] (\d+)/);
  const most = text.match(/≤ (\d+)/);
  return { least: least && Number(least[1]), most: most && Number(most[1]) };
}

// --- Checking ----------------------------------------------------------------------------------

/** What is wrong with a message by the tables; an empty list if nothing is. */
export function problems(spec, message, { sender = 'daemon' } = {}) {
  const known = sender === 'daemon' ? spec.daemonTags : spec.clientTags;
  if (!known.includes(message.t)) return [`there is no message ${message.t} of the ${sender}`];
  const { t, ...fields } = message;
  return shapeProblems(spec, t, fields, t);
}

function shapeProblems(spec, name, value, path) {
  const fields = spec.shapes.get(name);
  if (!fields) return [`${path}: PROTOCOL.md has no table for ${name}`];
  if (!isMap(value)) return [`${path}: expected a map (${name})`];
  const found = [];
  const names = new Set(fields.map((field) => field.name));
  for (const key of Object.keys(value)) {
    if (!names.has(key)) found.push(`${path}.${key}: not in the table of ${name}`);
  }
  const always = spec.statusShapes.includes(name);
  for (const field of fields) {
    const here = `${path}.${field.name}`;
    if (value[field.name] === undefined) {
      if (field.required || always) found.push(`${here}: missing`);
    } else {
      found.push(...typeProblems(spec, field.type, value[field.name], here));
    }
  }
  return found;
}

function typeProblems(spec, type, value, path) {
  if (value === null) return type.nil ? [] : [`${path}: nil`];
  const attempts = type.kinds.map((kind) => kindProblems(spec, kind, value, path));
  return attempts.find((found) => found.length === 0) ?? attempts[0];
}

function kindProblems(spec, kind, value, path) {
  const shown = typeof value === 'object' ? JSON.stringify(Object.keys(value)) : String(value);
  const wrong = [`${path}: ${shown.slice(0, 80)} is no ${kind.kind}`];
  const size = (of) => (kind.least !== undefined && of < kind.least) || of > kind.most;
  switch (kind.kind) {
    case 'bool':
      return typeof value === 'boolean' ? [] : wrong;
    case 'bin':
      return value instanceof Uint8Array ? [] : wrong;
    case 'str':
      return typeof value === 'string' && !size([...value].length) ? [] : wrong;
    case 'set':
      return typeof value === 'string' && (kind.open || kind.values.includes(value)) ? [] : wrong;
    case 'int':
      return (Number.isInteger(value) || typeof value === 'bigint') && !outside(kind, value)
        ? []
        : wrong;
    case 'float':
      return Number.isFinite(value) && !outside(kind, value) ? [] : wrong;
    case 'json':
      return isMap(value) ? [] : wrong;
    case 'dict':
      if (!isMap(value)) return wrong;
      return Object.entries(value).flatMap(([key, one]) =>
        typeProblems(spec, kind.element, one, `${path}.${key}`),
      );
    case 'array':
      if (!Array.isArray(value) || size(value.length)) return wrong;
      return value.flatMap((one, i) => typeProblems(spec, kind.element, one, `${path}[${i}]`));
    default:
      return shapeProblems(spec, kind.name, value, path);
  }
}

const outside = ({ least, most }, value) =>
  ((least ?? null) !== null && value < least) || ((most ?? null) !== null && value > most);
const isMap = (value) =>
  value !== null &&
  typeof value === 'object' &&
  !Array.isArray(value) &&
  !(value instanceof Uint8Array);
