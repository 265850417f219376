// Frames in every shape: in pieces, several at once, ill-formed. The daemon is strict here.

import assert from 'node:assert/strict';
import { encode } from '@msgpack/msgpack';
import { encodeMessage, frame } from '../client.mjs';
import { LONG, assertEnded } from '../context.mjs';
import { doctored } from '../raw.mjs';

const header = (length) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(length);
  return bytes;
};
const hex = (text) => Buffer.from(text.replace(/\s+/g, ''), 'hex');
const whoami = (id) => ({ t: 'whoami', id });

/** Payloads that cannot be followed: `protocol` without id, and the connection ends. */
const PAYLOADS = {
  'an unused first byte': hex('c1'),
  'random bytes': hex('93 d9 ff 00 c1 85 c1 ff fe'),
  'an array': encode(['whoami', 1]),
  'a string': encode('whoami'),
  nil: encode(null),
  'an integer': encode(7),
  'a map that breaks off': Buffer.from(encode(whoami(1))).subarray(0, -1),
  'bytes behind the map': Buffer.concat([encode(whoami(1)), encode(1)]),
  'two maps': Buffer.concat([encode(whoami(1)), encode(whoami(2))]),
  'an empty map': encode({}),
  'no tag': encode({ id: 1 }),
  'a tag that is no string': encode({ t: 3, id: 1 }),
  'a nil tag': encode({ t: null, id: 1 }),
  'an unknown tag': encode({ t: 'whoamI', id: 1 }),
  'a tag of the daemon': encode({ t: 'resumed', id: 1 }),
  'a tag that is no UTF-8': doctored(whoami(1), Buffer.from('whoami'), hex('77 68 ff 61 6d 69')),
  'a key that is an integer': hex('83 a1 74 a6 77 68 6f 61 6d 69 a2 69 64 01 05 06'),
  'a key that is bin': hex('83 a1 74 a6 77 68 6f 61 6d 69 a2 69 64 01 c4 01 61 06'),
  'a key that is no UTF-8': hex('83 a1 74 a6 77 68 6f 61 6d 69 a2 69 64 01 a1 ff 06'),
  'an unknown field': encode({ ...whoami(1), detail: true }),
  'an unknown field that is nil': encode({ ...whoami(1), detail: null }),
  'an unknown field of generate': encode({ t: 'generate', id: 1, prompt: 'x', temperature: 1 }),
  'no id': encode({ t: 'whoami' }),
  'an id that is nil': encode(whoami(null)),
  'an id that is a string': encode(whoami('1')),
  'an id that is a bool': encode(whoami(true)),
  'an id that is a float': hex('82 a1 74 a6 77 68 6f 61 6d 69 a2 69 64 cb 3f f0 00 00 00 00 00 00'),
  'an id below 0': encode(whoami(-1)),
  'an id above 4294967295': encode(whoami(2 ** 32)),
  'no id in cancel': encode({ t: 'cancel' }),
  '65 fields': encode({
    ...whoami(1),
    ...Object.fromEntries(Array.from({ length: 63 }, (_, i) => [`f${i}`, i])),
  }),
  'a map of 4294967295 fields': hex('df ff ff ff ff a1 74'),
  'an array of 4294967295 elements': hex('dd ff ff ff ff'),
  'a string of 4 GiB': hex('82 a1 74 a6 77 68 6f 61 6d 69 db ff ff ff ff 61'),
  'nesting without end': Buffer.concat([
    encode({ t: 'generate', id: 1, prompt: 'x', tools: [] }).subarray(0, -1),
    Buffer.alloc(5000, 0x91),
    hex('90'),
  ]),
};

const UNFRAMED = {
  'length 0': () => header(0),
  'one byte over the maximum': (max) => header(max + 1),
  '2 GiB': () => header(2 ** 31),
  'the largest length': () => header(2 ** 32 - 1),
  'text instead of frames': () => Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'),
};

const cases = [
  [
    'one byte at a time',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      const messages = [{ t: 'hello', features: ['v1'] }, whoami(1)];
      for (const byte of Buffer.concat(messages.map(encodeMessage))) {
        await raw.sendBytes(Buffer.of(byte));
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.equal((await raw.next()).t, 'welcome');
      assert.equal((await raw.next()).t, 'whoami_report');
    },
  ],
  [
    'many frames in one write',
    async (t) => {
      const raw = await t.raw();
      const ids = Array.from({ length: 20 }, (_, i) => i + 1);
      await raw.send(...ids.map(whoami));
      const seen = [];
      for (const _ of ids) seen.push((await raw.next()).id);
      assert.deepEqual(
        seen.sort((a, b) => a - b),
        ids,
      );
    },
  ],
  [
    'a write that ends inside a frame',
    async (t) => {
      const raw = await t.raw();
      const bytes = Buffer.concat([encodeMessage(whoami(1)), encodeMessage(whoami(2))]);
      await raw.sendBytes(bytes.subarray(0, bytes.length - 3));
      assert.equal((await raw.next()).id, 1);
      await raw.sendBytes(bytes.subarray(bytes.length - 3));
      assert.equal((await raw.next()).id, 2);
    },
  ],
  [
    'any order of keys and any width of integers and strings',
    async (t) => {
      const raw = await t.raw();
      const id64 = 'a2 69 64 cf 00 00 00 00 00 00 00 07';
      await raw.sendPayload(
        hex(`df 00 00 00 02 ${id64} db 00 00 00 01 74 d9 06 77 68 6f 61 6d 69`),
      );
      const { t: tag, id } = await raw.next();
      assert.deepEqual([tag, id], ['whoami_report', 7]);
      await raw.sendPayload(
        hex('82 a2 69 64 d3 00 00 00 00 00 00 00 08 a1 74 a6 77 68 6f 61 6d 69'),
      );
      assert.equal((await raw.next()).id, 8);
    },
  ],
  [
    'ids 0 and 4294967295',
    async (t) => {
      const raw = await t.raw();
      for (const id of [0, 2 ** 32 - 1]) {
        await raw.send(whoami(id));
        assert.equal((await raw.next()).id, id);
      }
    },
  ],
  [
    'a frame of the maximum is read',
    async (t) => {
      const connection = await t.open();
      const raw = await t.raw();
      const max = connection.welcome.limits.max_frame_bytes;
      const empty = encode({ t: 'count', id: 1, prompt: 'x'.repeat(70000) }).length - 70000;
      await raw.send({ t: 'count', id: 1, prompt: 'x'.repeat(max - empty) });
      assert.equal((await raw.next()).id, 1);
      await raw.send(whoami(2));
      assert.equal((await raw.next()).id, 2);
    },
  ],
  ...Object.entries(UNFRAMED).map(([what, bytes]) => [
    `length: ${what}`,
    async (t) => {
      const { limits } = (await t.open()).welcome;
      const raw = await t.raw();
      await raw.sendBytes(bytes(limits.max_frame_bytes));
      assertEnded(await raw.rest(), 'protocol');
    },
  ]),
  [
    'length: over the maximum in place of a hello',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      await raw.sendBytes(header(2 ** 31));
      assertEnded(await raw.rest(), 'protocol', 'handshake');
    },
  ],
  ...Object.entries(PAYLOADS).map(([what, payload]) => [
    `payload: ${what}`,
    async (t) => {
      const raw = await t.raw();
      await raw.sendPayload(payload);
      const answers = await raw.rest();
      assert.equal(answers.length, 1);
      assertEnded(answers, 'protocol');
    },
  ]),
  [
    'what came before is answered at once, or ended by the same failed',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until((message) => message.t === 'started');
      await raw.sendBytes(Buffer.concat([encodeMessage(whoami(2)), frame(hex('c1'))]));
      const answers = await raw.rest();
      assertEnded(answers, 'protocol');
      const others = answers.slice(0, -1).filter(({ t: tag }) => tag !== 'chunk');
      assert.deepEqual(
        others.map(({ t: tag, id }) => [tag, id]),
        [['whoami_report', 2]],
      );
    },
  ],
  ...Object.entries({ 'a bad payload': frame(hex('c1')), 'a bad length': header(0) }).map(
    ([what, offence]) => [
      `hello, questions and ${what} in one write: the answers, then the end`,
      async (t) => {
        const raw = await t.raw({ greeted: false });
        const messages = [{ t: 'hello', features: ['v1'] }, whoami(1), { t: 'status', id: 2 }];
        await raw.sendBytes(Buffer.concat([...messages.map(encodeMessage), offence]));
        const answers = await raw.rest();
        assert.deepEqual(
          answers.map(({ t: tag }) => tag),
          ['welcome', 'whoami_report', 'status_report', 'failed'],
        );
        assertEnded(answers, 'protocol', 'arrival');
      },
    ],
  ),
  [
    'an offence before the hello gets one answer',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      await raw.sendBytes(Buffer.concat([frame(hex('c1')), encodeMessage(whoami(2))]));
      const answers = await raw.rest();
      assert.equal(answers.length, 1);
      assertEnded(answers, 'protocol', 'handshake');
    },
  ],
  [
    'what came after is not answered',
    async (t) => {
      const raw = await t.raw();
      await raw.sendBytes(Buffer.concat([frame(hex('c1')), encodeMessage(whoami(2))]));
      assert.equal((await raw.rest()).length, 1);
    },
  ],
  [
    'failed can be read after a write that failed',
    async (t) => {
      const raw = await t.raw();
      raw.stopReading();
      await raw.sendPayload(hex('c1'));
      // The daemon is sure to have closed once a write fails.
      await t.eventually(async () => {
        await raw.send(whoami(2));
        return raw.unwritable;
      }, 'EPIPE');
      raw.goOnReading();
      assertEnded(await raw.rest(), 'protocol');
    },
  ],
  [
    'half a frame is ended when its time is over',
    async (t) => {
      const raw = await t.raw();
      const [first, ...others] = encodeMessage(whoami(1));
      await raw.sendBytes(Buffer.of(first));
      const drip = setInterval(
        () => others.length > 8 && raw.sendBytes(Buffer.of(others.shift())),
        100,
      );
      try {
        assertEnded(await raw.rest(), 'protocol');
      } finally {
        clearInterval(drip);
      }
    },
    ({ small }) => small,
  ],
  [
    'a quiet connection without half a frame stays',
    async (t) => {
      const raw = await t.raw();
      const { limits } = (await t.open()).welcome;
      await new Promise((resolve) => setTimeout(resolve, 1.5 * limits.frame_timeout_ms));
      await raw.send(whoami(1));
      assert.equal((await raw.next()).t, 'whoami_report');
    },
    ({ small }) => small,
  ],
];

export default cases.map(([name, run, needs]) => ({ name: `frames: ${name}`, run, needs }));
