// Every other reason that needs no broken engine. The last case ends the daemon.

import assert from 'node:assert/strict';
import { Connection, Failed, Gone } from '../client.mjs';
import { LONG, assertEnded, refusal } from '../context.mjs';

const small = (facts) => facts.small;
/** About 1000 tokens to wait with, in any engine. */
const BULKY = { prompt: 'word '.repeat(800), params: { max_tokens: 64 } };
const ms = (n) => new Promise((resolve) => setTimeout(resolve, n));

/** Sends requests until one is refused; its `failed`. */
async function untilRefused(t, connection, fields, most) {
  let refused = null;
  for (let i = 0; i < most && !refused; i++) {
    connection.generate(fields).end.catch((error) => (refused ??= error));
    await connection.ask('whoami');
  }
  await t.eventually(() => refused !== null, `a refusal among ${most} requests`);
  if (!(refused instanceof Failed)) throw refused;
  return refused.answer;
}

const isEnd = ({ t: tag }) => ['done', 'failed', 'metrics_report'].includes(tag);

/** A raw connection, and how many bytes its `metrics` answers have. */
async function unread(t) {
  const raw = await t.raw();
  await raw.send({ t: 'metrics', id: 1 });
  const { text } = await raw.next();
  return { raw, size: text.length };
}

const cases = [
  [
    'wrong_model',
    async (t) => {
      const connection = await t.open();
      const failed = await refusal(connection.generate({ prompt: 'x', model: 'no-such' }).end);
      assert.equal(failed.reason, 'wrong_model');
      assert.equal(failed.retryable, false);
      assert.deepEqual(
        failed.models,
        connection.welcome.models.map(({ model }) => model),
      );
    },
  ],
  [
    'class_not_allowed',
    async (t) => {
      const connection = await t.open();
      const failed = await refusal(connection.generate({ prompt: 'x', class: 'interactive' }).end);
      assert.equal(failed.reason, 'class_not_allowed');
      assert.equal(failed.retryable, false);
    },
    ({ whoami }) => !whoami.allowed.includes('interactive'),
  ],
  [
    'too_large: a prompt beyond the context',
    async (t) => {
      const connection = await t.open();
      const context = connection.welcome.models[0].max_context_tok ?? 8192;
      const failed = await refusal(
        connection.generate({ prompt: 'word '.repeat(2 * context) }).end,
      );
      assert.equal(failed.reason, 'too_large');
      assert.equal(failed.retryable, false);
      assert.ok(failed.used > failed.limit, JSON.stringify(failed));
      assert.equal((await connection.ask('whoami')).t, 'whoami_report');
    },
  ],
  [
    'too_large: prompt plus max_tokens beyond the context',
    async (t) => {
      const connection = await t.open();
      const context = connection.welcome.models[0].max_context_tok ?? 8192;
      const params = { max_tokens: context };
      const failed = await refusal(connection.generate({ prompt: 'A few words.', params }).end);
      assert.equal(failed.reason, 'too_large');
      assert.equal(failed.limit, context);
      assert.ok(failed.used > context);
    },
  ],
  [
    'peer_quota: one live request too many on a connection',
    async (t) => {
      await t.occupy({ class: 'batch' });
      const connection = await t.open();
      const most = connection.welcome.limits.in_flight_per_session;
      const fields = { prompt: 'x', class: 'batch', params: { max_tokens: 1 } };
      const ids = [];
      for (let i = 0; i < most; i++) ids.push(connection.generate(fields));
      const failed = await refusal(connection.generate(fields).end);
      assert.equal(failed.reason, 'peer_quota');
      assert.equal(failed.retryable, true);
      assert.ok(
        ids.every((request) => !request.finished),
        'others suffered',
      );
    },
    small,
  ],
  [
    'peer_quota: one connection too many',
    async (t) => {
      let ended = null;
      for (let i = 0; i < 80 && !ended; i++) {
        const raw = await t.raw({ greeted: false });
        await raw.hello();
        const first = await raw.next();
        if (first.t === 'failed') ended = [first, ...(await raw.rest())];
      }
      assert.ok(ended, '80 connections were taken');
      assertEnded(ended, 'peer_quota', 'handshake');
    },
    small,
  ],
  [
    'tokens_full: more tokens than all classes together may hold',
    async (t) => {
      await t.occupy({ class: 'loop' });
      const connection = await t.open();
      // The higher class first: a lower one never makes room by itself.
      for (let i = 0; i < 11; i++) connection.generate({ ...BULKY, class: 'loop' });
      const failed = await untilRefused(t, connection, { ...BULKY, class: 'batch' }, 20);
      assert.equal(failed.reason, 'tokens_full', JSON.stringify(failed));
      assert.equal(failed.retryable, true);
      assert.equal(failed.phase, 'arrival');
      assert.ok(failed.used + 700 > failed.limit, JSON.stringify(failed));
    },
    small,
  ],
  [
    'peer_quota: more tokens than one user’s share of a class',
    async (t) => {
      await t.occupy({ class: 'loop' });
      const failed = await untilRefused(t, await t.open(), { ...BULKY, class: 'loop' }, 30);
      assert.equal(failed.reason, 'peer_quota', JSON.stringify(failed));
      assert.equal(failed.retryable, true);
    },
    small,
  ],
  [
    'class_full: more requests than may wait',
    async (t) => {
      // By the same class: it would have a lower one stopped.
      await t.occupy({ class: 'loop' });
      const tiny = { prompt: 'x', class: 'batch', params: { max_tokens: 1 } };
      const first = await t.open();
      for (let i = 0; i < 30; i++) first.generate({ ...tiny, class: 'loop' });
      const failed = await untilRefused(t, await t.open(), tiny, 30);
      assert.equal(failed.reason, 'class_full', JSON.stringify(failed));
      assert.equal(failed.retryable, true);
    },
    small,
  ],
  [
    'bytes_full',
    async (t) => {
      await t.occupy({ class: 'batch' });
      // Bytes that are no tokens: stop strings of four bytes a character.
      const stop = Array(16).fill('\u{1F6D1}'.repeat(1000));
      const fields = { prompt: 'x', class: 'batch', params: { max_tokens: 1, stop } };
      const failed = await untilRefused(t, await t.open(), fields, 30);
      assert.equal(failed.reason, 'bytes_full', JSON.stringify(failed));
      assert.equal(failed.retryable, true);
    },
    small,
  ],
  [
    'slow_reader: the failed of each request stands behind what is unread',
    async (t) => {
      const { raw, size } = await unread(t);
      await raw.send({ t: 'generate', id: 1, ...LONG }, { t: 'generate', id: 2, ...LONG });
      await raw.until(({ t: tag, id }) => tag === 'started' && id === 2);
      raw.stopReading();
      // Beyond the bound with what kernel and daemon keep, and far from twice the bound.
      const watcher = await t.open();
      const running = async () => (await watcher.ask('status')).status.gate.in_flight > 0;
      const asked = [];
      for (let id = 10; await running(); id++) {
        assert.ok(id * size < 2 ** 22, 'the slow reader keeps its requests');
        await raw.send({ t: 'metrics', id });
        asked.push(id);
      }
      raw.goOnReading();
      const ends = new Map();
      await raw.until((message) => {
        if (isEnd(message)) ends.set(message.id, message);
        return ends.size === asked.length + 2;
      });
      for (const id of [1, 2]) {
        const { t: tag, reason, retryable } = ends.get(id);
        assert.deepEqual([tag, reason, retryable], ['failed', 'slow_reader', true]);
      }
      for (const id of asked) assert.equal(ends.get(id).t, 'metrics_report');
      await raw.send({ t: 'generate', id: 1, prompt: 'Hi', params: { max_tokens: 1 } });
      assert.equal((await raw.until(isEnd)).at(-1).t, 'done', 'the connection lives');
    },
    small,
  ],
  [
    'slow_reader: what asks on without reading is ended with a word',
    async (t) => {
      const { raw, size } = await unread(t);
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until(({ t: tag }) => tag === 'started');
      raw.stopReading();
      // Twice the bound of this run, and what the kernel keeps, is far below a megabyte.
      const ids = Array.from({ length: Math.ceil(2 ** 20 / size) }, (_, i) => i + 10);
      await raw.send(...ids.map((id) => ({ t: 'metrics', id })));
      // Somebody else's question is answered in a turn of its own, in which one of these is too.
      const watcher = await t.open();
      for (const _ of ids) await watcher.ask('whoami');
      raw.goOnReading();
      const seen = await raw.rest();
      assertEnded(seen, 'slow_reader', 'arrival');
      const mine = seen.filter(({ id, t: tag }) => id === 1 && tag !== 'chunk');
      for (const { reason } of mine) assert.equal(reason, 'slow_reader');
    },
    small,
  ],
  [
    'shutting_down',
    async (t) => {
      const { connection, requests } = await t.occupy({ class: 'batch' });
      const waiting = connection.generate({ ...LONG, class: 'batch' });
      await t.eventually(
        async () => (await connection.ask('status')).status.gate.queued === 1,
        'one',
      );
      process.kill(t.pid, 'SIGTERM');
      const failed = await refusal(t.within(waiting.end, 'the waiting request'));
      assert.equal(failed.reason, 'shutting_down');
      assert.equal(failed.retryable, true);
      const late = await refusal(connection.generate({ prompt: 'x' }).end);
      assert.equal(late.reason, 'shutting_down');
      for (const request of requests) {
        await t.within(
          request.end.catch((error) => {
            if (!(error instanceof Failed) && !(error instanceof Gone)) throw error;
          }),
          'the end of what ran',
        );
      }
      assert.equal(requests[0].error?.answer?.reason ?? 'shutting_down', 'shutting_down');
      await t.eventually(async () => {
        try {
          (await Connection.open(t.path)).close();
          return false;
        } catch (error) {
          await ms(20);
          return error.code === 'ENOENT' || error.code === 'ECONNREFUSED';
        }
      }, 'the daemon is gone');
    },
    ({ mortal }) => mortal,
    true,
  ],
];

export default cases.map(([name, run, needs, last]) => ({
  name: `refusals: ${name}`,
  run,
  needs,
  last,
}));
