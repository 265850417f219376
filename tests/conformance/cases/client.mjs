// The client alone, with a stream of bytes in place of a socket.

import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { encode } from '@msgpack/msgpack';
import {
  Connection,
  Failed,
  FrameReader,
  Gone,
  decodeMessage,
  encodeMessage,
  frame,
  generatePatiently,
  openSocket,
  socketPath,
} from '../client.mjs';

const WELCOME = {
  t: 'welcome',
  peer: { uid: 1, gid: 1, pid: 1 },
  class: 'loop',
  ceiling: 'loop',
  why: [],
  models: [],
  limits: { max_frame_bytes: 8388608, frame_timeout_ms: 10000, in_flight_per_session: 256 },
  features: ['v1'],
  version: '0',
};
const DONE = {
  t: 'done',
  id: 1,
  rid: 'r',
  finish_reason: 'stop',
  usage: { prompt_tok: 1, output_tok: 1 },
  timings: { queue_ms: 0, e2e_ms: 0 },
  identity: { engine: 'e', model: 'm' },
};

/** A socket that keeps what was written as messages and lets the test speak for the daemon. */
class FakeSocket extends Duplex {
  sent = [];
  #reader = new FrameReader();

  _read() {}

  _write(bytes, _encoding, written) {
    for (const payload of this.#reader.push(bytes)) this.sent.push(decodeMessage(payload));
    written();
  }

  say(...messages) {
    for (const message of messages) this.push(encodeMessage(message));
  }

  hangUp() {
    this.push(null);
  }
}

async function connected() {
  const socket = new FakeSocket();
  const connection = new Connection(socket);
  socket.say(WELCOME);
  await connection.ready;
  return { socket, connection };
}

const gone = (error) => error instanceof Gone;
const failed = (reason) => (error) => error instanceof Failed && error.answer.reason === reason;
const refused = (fields) => ({
  t: 'failed',
  reason: 'class_full',
  message: 'full',
  retryable: true,
  phase: 'arrival',
  ...fields,
});

const cases = [
  [
    'hello is the first message and offers v1',
    async () => {
      const { socket } = await connected();
      assert.deepEqual(socket.sent, [{ t: 'hello', features: ['v1'] }]);
    },
  ],
  [
    'unknown tags, with and without id, are ignored',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      socket.say({ t: 'weather' }, { t: 'weather', id: 1, text: 'rain' }, DONE);
      const answer = await request.answer();
      assert.deepEqual(
        answer.messages.map((message) => message.t),
        ['done'],
      );
    },
  ],
  [
    'unknown fields are ignored at any depth',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      const timings = { ...DONE.timings, new_ms: [1, { a: null }] };
      socket.say({ t: 'chunk', id: 1, n_tok: 1, text: 'y', mood: 'good' });
      socket.say({ ...DONE, timings, colour: { red: 1 } });
      assert.equal((await request.answer()).text, 'y');
    },
  ],
  [
    'messages for an id that is not live are ignored',
    async () => {
      const { socket, connection } = await connected();
      socket.say({ ...DONE, id: 7 }, { t: 'chunk', id: 8, n_tok: 1 }, refused({ id: 9 }));
      const request = connection.generate({ prompt: 'x' });
      socket.say({ ...DONE, id: 7 }, DONE);
      assert.equal((await request.end).id, 1);
    },
  ],
  [
    'an unknown kind of chunk is not text',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      socket.say({ t: 'chunk', id: 1, n_tok: 1, kind: 'song', text: 'la' });
      socket.say({ t: 'chunk', id: 1, n_tok: 1, kind: 'thinking', text: 'hm' }, DONE);
      const { text, thinking } = await request.answer();
      assert.deepEqual({ text, thinking }, { text: '', thinking: 'hm' });
    },
  ],
  [
    'an unknown reason is judged by retryable',
    async () => {
      const { socket, connection } = await connected();
      const waits = [];
      const sleep = async (ms) => {
        waits.push(ms);
        setImmediate(() => socket.say({ ...DONE, id: 2 }));
      };
      const answer = generatePatiently(connection, { prompt: 'x' }, { sleep });
      socket.say(refused({ id: 1, reason: 'eclipse', retry_after_ms: 7, ticket: 't-1' }));
      assert.equal((await answer).done.t, 'done');
      assert.deepEqual(waits, [7]);
      assert.equal(socket.sent.at(-1).ticket, 't-1');
    },
  ],
  [
    'where nobody knows when, each wait is longer',
    async () => {
      const { socket, connection } = await connected();
      const waits = [];
      const sleep = async (ms) => {
        waits.push(ms);
        const id = waits.length + 1;
        setImmediate(() => socket.say(id < 9 ? refused({ id }) : { ...DONE, id }));
      };
      const answer = generatePatiently(connection, { prompt: 'x' }, { tries: 9, sleep });
      socket.say(refused({ id: 1 }));
      assert.equal((await answer).done.t, 'done');
      waits.forEach((ms, i) => {
        const middle = Math.min(1000 * 2 ** i, 60000);
        assert.ok(ms >= middle / 2 && ms < middle * 1.5, `wait ${i} was ${ms} ms`);
      });
    },
  ],
  [
    'what is not retryable is not repeated',
    async () => {
      const { socket, connection } = await connected();
      const sleep = () => assert.fail('waited');
      const answer = generatePatiently(connection, { prompt: 'x' }, { sleep });
      socket.say(refused({ id: 1, retryable: false }));
      await assert.rejects(answer, failed('class_full'));
    },
  ],
  [
    'the ack of cancel does not end the request',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      const cancelled = connection.cancel(1);
      socket.say({ t: 'ack', id: 1, verb: 'cancel' });
      assert.equal(await cancelled, true);
      assert.notEqual(request.finished, true);
      socket.say(refused({ id: 1, reason: 'cancelled' }));
      await assert.rejects(request.end, failed('cancelled'));
    },
  ],
  [
    'an ack of cancel may come after the end',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      const cancelled = connection.cancel(1);
      socket.say(DONE, { t: 'ack', id: 1, verb: 'cancel', applied: false });
      assert.equal((await request.end).t, 'done');
      assert.equal(await cancelled, false);
    },
  ],
  [
    'an ack of settle ends the lease only if applied',
    async () => {
      const { socket, connection } = await connected();
      const lease = connection.start('lease', { prompt_tok: 1, max_tok: 1 });
      socket.say({ t: 'ack', id: 1, verb: 'settle', applied: false });
      socket.say({ t: 'started', id: 1, rid: 'r', queue_ms: 0 });
      await lease.first('started');
      assert.notEqual(lease.finished, true);
      socket.say({ t: 'ack', id: 1, verb: 'settle' });
      assert.equal((await lease.end).verb, 'settle');
    },
  ],
  [
    'failed without id fails everything and closes',
    async () => {
      const { socket, connection } = await connected();
      const requests = [connection.generate({ prompt: 'x' }), connection.start('whoami')];
      const cancelled = connection.cancel(1);
      socket.say(refused({ reason: 'protocol', retryable: false }));
      for (const promise of [...requests.map((request) => request.end), cancelled]) {
        await assert.rejects(promise, failed('protocol'));
      }
      await connection.closed;
      await assert.rejects(connection.ask('whoami'), failed('protocol'));
    },
  ],
  [
    'failed with a nil id is one without id',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      socket.say(refused({ id: null }));
      await assert.rejects(request.end, failed('class_full'));
      await connection.closed;
    },
  ],
  [
    'a refused hello fails the requests that were sent behind it',
    async () => {
      const socket = new FakeSocket();
      const connection = new Connection(socket, { model: 'nope' });
      const request = connection.generate({ prompt: 'x' });
      socket.say(refused({ reason: 'wrong_model', retryable: false, phase: 'handshake' }));
      await assert.rejects(connection.ready, failed('wrong_model'));
      await assert.rejects(request.end, failed('wrong_model'));
    },
  ],
  [
    'end of file fails everything that is live',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      socket.hangUp();
      await assert.rejects(request.end, gone);
    },
  ],
  [
    'after half of an answer a failure is no clean end',
    async () => {
      const { socket, connection } = await connected();
      const request = connection.generate({ prompt: 'x' });
      socket.say({ t: 'chunk', id: 1, n_tok: 1, text: 'half' });
      socket.say(refused({ id: 1, reason: 'engine_failed' }));
      await assert.rejects(request.answer(), failed('engine_failed'));
    },
  ],
  [
    'frames in any pieces',
    async () => {
      const reader = new FrameReader();
      const bytes = Buffer.concat([WELCOME, DONE, { t: 'resumed', id: 1 }].map(encodeMessage));
      for (const size of [1, 2, 3, 7, 64, bytes.length]) {
        const tags = [];
        for (let at = 0; at < bytes.length; at += size) {
          for (const payload of reader.push(bytes.subarray(at, at + size))) {
            tags.push(decodeMessage(payload).t);
          }
        }
        assert.deepEqual(tags, ['welcome', 'done', 'resumed'], `pieces of ${size}`);
      }
    },
  ],
  [
    'frames of length 0, over-long ones and garbage end the connection',
    async () => {
      const long = Buffer.from([0x00, 0x80, 0x00, 0x01]);
      for (const bytes of [Buffer.alloc(4), long, frame(Buffer.from([0xc1])), frame(encode([1]))]) {
        const { socket, connection } = await connected();
        const request = connection.generate({ prompt: 'x' });
        socket.push(bytes);
        await assert.rejects(request.end, gone);
      }
    },
  ],
  [
    'ids count up and live ones are skipped',
    async () => {
      const { connection } = await connected();
      const ids = [1, 2, 3].map(() => connection.generate({ prompt: 'x' }).id);
      assert.deepEqual(ids, [1, 2, 3]);
    },
  ],
  [
    'connect tries again on EAGAIN alone',
    async () => {
      const waits = [];
      const sleep = async (ms) => waits.push(ms);
      let failures = 9;
      const connect = async () => {
        if (failures-- > 0) throw Object.assign(new Error('busy'), { code: 'EAGAIN' });
        return new FakeSocket();
      };
      await openSocket('x', { connect, sleep });
      assert.equal(waits.length, 9);
      waits.forEach((ms, i) => {
        const most = Math.min(10 * 2 ** i, 1000);
        assert.ok(ms >= most / 2 && ms < most * 1.5, `wait ${i} was ${ms} ms`);
      });
      const refuse = async () => {
        throw Object.assign(new Error('nobody'), { code: 'ECONNREFUSED' });
      };
      await assert.rejects(openSocket('x', { connect: refuse, sleep }), { code: 'ECONNREFUSED' });
      assert.equal(waits.length, 9);
    },
  ],
  [
    'the socket is found by the rules of the page',
    async () => {
      const all = {
        ONEGATE_SOCKET: '/a',
        XDG_RUNTIME_DIR: '/run/user/1',
        XDG_CACHE_HOME: '/cache',
        HOME: '/home/u',
      };
      const there = () => true;
      assert.equal(socketPath(all, there), '/a');
      const none = { ...all, ONEGATE_SOCKET: '' };
      assert.equal(socketPath(none, there), '/run/user/1/onegate.sock');
      const relative = { ...none, XDG_RUNTIME_DIR: 'run' };
      assert.equal(socketPath(relative, there), '/cache/onegate/onegate.sock');
      const home = (file) => file.startsWith('/home');
      assert.equal(socketPath(none, home), '/home/u/.cache/onegate/onegate.sock');
      assert.equal(
        socketPath({}, () => false),
        '/run/onegate/onegate.sock',
      );
    },
  ],
];

export default cases.map(([name, run]) => ({ name: `client: ${name}`, run, alone: true }));
