// PROTOCOL.md and the golden frames against each other, and the page's examples played for real.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { decode, encode } from '@msgpack/msgpack';
import { assertEnded } from '../context.mjs';
import { problems } from '../spec.mjs';

// A seed may be larger than what a number of this language holds.
const WIDE = { useBigInt64: true };

/** A decoded message as its JSON block writes it: byte strings in base64. */
function asJson(value) {
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  if (Array.isArray(value)) return value.map(asJson);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, asJson(one)]));
}

/** The message of one whole frame. */
function unframe(bytes) {
  assert.equal(bytes.readUInt32BE(0), bytes.length - 4, 'the length does not fit');
  return decode(bytes.subarray(4), WIDE);
}

function roundTrip(bytes, json) {
  const message = unframe(bytes);
  assert.deepEqual(asJson(message), json);
  assert.deepEqual(
    asJson(decode(encode(message, WIDE), WIDE)),
    asJson(message),
    'not the same after this codec',
  );
  return message;
}

const cases = [
  [
    'every example is the frame of its JSON',
    async ({ spec }) => {
      assert.ok(spec.examples.length >= 3);
      for (const example of spec.examples) {
        for (const { message, bytes } of example) roundTrip(bytes, message);
      }
    },
  ],
  [
    'every example keeps to the tables',
    async ({ spec }) => {
      for (const { sender, answer, message } of spec.examples.flat()) {
        const found = problems(spec, message, { sender });
        if (answer === null) assert.deepEqual(found, []);
        else assert.notDeepEqual(found, [], 'marked as a mistake, and is none');
      }
    },
  ],
  [
    'every golden frame is the frame of its JSON and keeps to the tables',
    async (t) => {
      for (const sender of ['client', 'daemon']) {
        const names = readdirSync(`${t.golden}/${sender}`).filter((name) => name.endsWith('.json'));
        const seen = new Set();
        for (const name of names) {
          const stem = `${t.golden}/${sender}/${name.slice(0, -'.json'.length)}`;
          const json = JSON.parse(readFileSync(`${stem}.json`, 'utf8'));
          try {
            const message = roundTrip(readFileSync(`${stem}.bin`), json);
            assert.deepEqual(problems(t.spec, message, { sender }), []);
          } catch (error) {
            error.message = `${sender}/${name}: ${error.message}`;
            throw error;
          }
          seen.add(json.t);
        }
        const tags = sender === 'client' ? t.spec.clientTags : t.spec.daemonTags;
        assert.deepEqual([...seen].sort(), [...tags].sort(), `golden frames of the ${sender}`);
      }
    },
  ],
  [
    'every reason of the failed table has its row, and the other way round',
    async ({ spec }) => {
      const { type } = spec.shapes.get('failed').find((field) => field.name === 'reason');
      const rows = spec.reasons.map(([reason]) => reason);
      assert.deepEqual([...type.kinds[0].values].sort(), rows.sort());
    },
  ],
];

/** Each example's client frames, byte for byte, with what must not and what must come back. */
async function playExamples(t) {
  for (const example of t.spec.examples) {
    const raw = await t.raw({ greeted: false });
    const answers = [];
    const askAndWait = async (id) => {
      // The answer to one more question is there when everything before was read.
      await raw.send({ t: 'whoami', id });
      answers.push(...(await raw.until((message) => message.t === 'whoami_report')));
    };
    const sent = example.filter(({ sender }) => sender === 'client');
    for (const { bytes, answer, message } of sent) {
      if (answer === 'protocol') await askAndWait(98);
      await raw.sendBytes(bytes);
      if (message.t === 'hello') assert.equal((await raw.next()).t, 'welcome');
    }
    const protocol = sent.some(({ answer }) => answer === 'protocol');
    if (protocol) {
      const rest = await raw.rest();
      assertEnded(rest, 'protocol');
      answers.push(...rest);
    } else {
      await askAndWait(99);
    }
    assertMistakes(example, sent, answers, protocol);
    raw.close();
  }
}

function assertMistakes(example, sent, answers, protocol) {
  const mistakes = sent.filter(({ answer }) => answer === 'invalid');
  const ids = new Set(mistakes.map(({ message }) => message.id));
  for (const { reason, id } of answers) {
    if (reason === 'invalid') assert.ok(ids.has(id), `example: id ${id} is no mistake`);
    if (reason === 'protocol') assert.ok(protocol, 'example: no mistake was sent');
  }
  for (const { message } of mistakes) {
    const stated = example.find((one) => one.sender === 'daemon' && one.message.id === message.id);
    const got = answers.find((one) => one.id === message.id && one.t === 'failed');
    for (const field of ['reason', 'path', 'message', 'phase', 'retryable']) {
      assert.equal(got[field], stated.message[field]);
    }
  }
}

export default [
  ...cases.map(([name, run]) => ({ name: `page: ${name}`, run, alone: true })),
  { name: 'page: the examples, played to the daemon byte for byte', run: playExamples },
];
