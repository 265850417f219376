// Cancel in every phase, ids that are live, deadlines, half-closed connections.

import assert from 'node:assert/strict';
import { LONG, refusal } from '../context.mjs';

const isEnd = ({ t }) => t === 'done' || t === 'failed';
const ms = (n) => new Promise((resolve) => setTimeout(resolve, n));

const cases = [
  [
    'cancel of a running request',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate(LONG);
      await request.first('chunk');
      assert.equal(await connection.cancel(request.id), true);
      const failed = await refusal(request.end);
      assert.equal(failed.reason, 'cancelled');
      assert.equal(failed.phase, 'decode');
      assert.equal(failed.rid, (await request.first('started')).rid);
    },
  ],
  [
    'cancel of a running request that does not stream',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate({ ...LONG, stream: false });
      await request.first('started');
      assert.equal(await connection.cancel(request.id), true);
      assert.equal((await refusal(request.end)).reason, 'cancelled');
      const seen = [];
      await assert.rejects(async () => {
        for await (const message of request) seen.push(message.t);
      });
      assert.ok(!seen.includes('chunk'), 'tokens up to then are not delivered');
    },
  ],
  [
    'cancel of a waiting request',
    async (t) => {
      const { connection } = await t.occupy();
      const request = connection.generate(LONG);
      await t.eventually(
        async () => (await connection.ask('status')).status.gate.queued === 1,
        'one',
      );
      assert.equal(await connection.cancel(request.id), true);
      const failed = await refusal(request.end);
      assert.equal(failed.reason, 'cancelled');
      assert.equal(failed.phase, 'queued');
      await assert.rejects(request.first('started'));
    },
  ],
  [
    'cancel right behind the request',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG }, { t: 'cancel', id: 1 });
      const seen = await raw.until(isEnd);
      assert.equal(seen.at(-1).reason, 'cancelled');
      if (!seen.some(({ t: tag }) => tag === 'ack')) assert.equal((await raw.next()).t, 'ack');
    },
  ],
  [
    'cancel of an unknown id',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'cancel', id: 12 });
      const { t: tag, id, verb, applied } = await raw.next();
      assert.deepEqual(
        { tag, id, verb, applied },
        { tag: 'ack', id: 12, verb: 'cancel', applied: false },
      );
    },
  ],
  [
    'cancel after the end',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate({ prompt: 'Hi', params: { max_tokens: 1 } });
      await request.end;
      assert.equal(await connection.cancel(request.id), false);
    },
  ],
  [
    'cancel twice: two acks, one end',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until(({ t: tag }) => tag === 'started');
      await raw.send({ t: 'cancel', id: 1 }, { t: 'cancel', id: 1 }, { t: 'whoami', id: 2 });
      const seen = [];
      let acks = 0;
      while (acks < 2 || !seen.some(isEnd) || !seen.some(({ id }) => id === 2)) {
        const message = await raw.next();
        if (message.t === 'ack') acks++;
        seen.push(message);
      }
      assert.equal(seen.filter(isEnd).length, 1);
      assert.notEqual(seen.find(({ t: tag }) => tag === 'ack').applied, false);
    },
  ],
  [
    'cancel of somebody else’s id does nothing',
    async (t) => {
      const mine = await t.open();
      const request = mine.generate(LONG);
      await request.first('chunk');
      assert.equal(await (await t.open()).cancel(request.id), false);
      assert.notEqual(request.finished, true);
    },
  ],
  [
    'a cancelled id may be used again',
    async (t) => {
      const raw = await t.raw();
      for (let round = 0; round < 3; round++) {
        await raw.send({ t: 'generate', id: 1, ...LONG });
        await raw.until(({ t: tag }) => tag === 'chunk');
        await raw.send({ t: 'cancel', id: 1 });
        let ack = false;
        let end = false;
        await raw.until((message) => {
          ack ||= message.t === 'ack';
          end ||= message.t === 'failed';
          return ack && end;
        });
      }
    },
  ],
  [
    'a live id ends both requests, with one failed',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until(({ t: tag }) => tag === 'chunk');
      await raw.send({ t: 'generate', id: 1, prompt: 'another' });
      const failed = (await raw.until(isEnd)).at(-1);
      assert.deepEqual([failed.id, failed.reason, failed.path], [1, 'invalid', 'id']);
      await raw.send({ t: 'generate', id: 1, prompt: 'Hi', params: { max_tokens: 2 } });
      const later = await raw.until(isEnd);
      assert.deepEqual([later[0].t, later.at(-1).t], ['started', 'done']);
    },
  ],
  [
    'a live id of another verb is one too',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until(({ t: tag }) => tag === 'chunk');
      await raw.send({ t: 'whoami', id: 1 });
      const failed = (await raw.until((message) => message.t !== 'chunk')).at(-1);
      assert.deepEqual([failed.t, failed.reason, failed.path], ['failed', 'invalid', 'id']);
    },
  ],
  [
    'a refused verb under a live id ends its request too',
    async (t) => {
      for (const message of [{ t: 'embed', input: ['x'] }, { t: 'load', model: 5 }]) {
        const raw = await t.raw();
        await raw.send({ t: 'generate', id: 1, ...LONG });
        await raw.until(({ t: tag }) => tag === 'chunk');
        await raw.send({ ...message, id: 1 });
        const failed = (await raw.until((one) => one.t !== 'chunk')).at(-1);
        assert.deepEqual([failed.t, failed.id], ['failed', 1]);
        await raw.send({ t: 'generate', id: 1, prompt: 'Hi', params: { max_tokens: 2 } });
        const later = await raw.until(isEnd);
        assert.deepEqual([later[0].t, later.at(-1).t], ['started', 'done']);
        raw.close();
      }
    },
  ],
  [
    'a settle under the id of a live request ends nothing',
    async (t) => {
      for (const usage of [null, 5]) {
        const raw = await t.raw();
        await raw.send({ t: 'generate', id: 1, ...LONG });
        await raw.until(({ t: tag }) => tag === 'chunk');
        await raw.send({ t: 'settle', id: 1, usage });
        const ack = (await raw.until((one) => one.t !== 'chunk')).at(-1);
        assert.deepEqual(ack, { t: 'ack', id: 1, verb: 'settle', applied: false });
        await raw.until(({ t: tag }) => tag === 'chunk');
        raw.close();
      }
    },
  ],
  [
    'ttft_timeout_ms runs out while waiting',
    async (t) => {
      const { connection } = await t.occupy();
      const request = connection.generate({ ...LONG, ttft_timeout_ms: 200 });
      const failed = await refusal(t.within(request.end, 'the deadline'));
      assert.ok(
        ['ttft_deadline_exceeded', 'wont_meet_deadline'].includes(failed.reason),
        failed.reason,
      );
      assert.equal(failed.phase, failed.reason === 'wont_meet_deadline' ? 'arrival' : 'queued');
      assert.equal(failed.retryable, true);
      await assert.rejects(request.first('started'));
    },
  ],
  [
    'timeout_ms runs out while waiting',
    async (t) => {
      const { connection } = await t.occupy();
      const failed = await refusal(
        t.within(connection.generate({ ...LONG, timeout_ms: 200 }).end, 'the deadline'),
      );
      assert.ok(['deadline_exceeded', 'wont_meet_deadline'].includes(failed.reason), failed.reason);
    },
  ],
  [
    'timeout_ms runs out while it runs',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate({ ...LONG, timeout_ms: 400 * t.factor });
      const failed = await refusal(t.within(request.end, 'the deadline'));
      assert.equal(failed.reason, 'deadline_exceeded');
      assert.equal(failed.phase, 'decode');
      await request.first('started');
    },
  ],
  [
    'ttft_timeout_ms does not bound an answer that has begun',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate({ ...LONG, ttft_timeout_ms: 600 * t.factor });
      await request.first('chunk');
      await ms(900 * t.factor);
      assert.notEqual(request.finished, true);
    },
  ],
  [
    'timeouts above the maximum of the class are refused',
    async (t) => {
      const connection = await t.open();
      const limits = connection.welcome.limits.classes[connection.welcome.class];
      for (const name of ['ttft_timeout_ms', 'timeout_ms']) {
        const most = limits[`${name}_max`] ?? null;
        if (most === null) continue;
        const request = connection.generate({ prompt: 'Hi', [name]: most + 1 });
        const failed = await refusal(request.end);
        assert.deepEqual([failed.reason, failed.path], ['invalid', name]);
        assert.deepEqual([failed.limit, failed.used], [most, most + 1]);
      }
    },
  ],
  [
    'closing the writing half is the end of everything',
    async (t) => {
      const watcher = await t.open();
      const { connection } = await t.occupy();
      connection.close();
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until(({ t: tag }) => tag === 'started');
      raw.halfClose();
      assert.ok((await raw.rest()).every(({ t: tag }) => tag !== 'done'));
      await t.eventually(
        async () => (await watcher.ask('status')).status.gate.in_flight === 0,
        'gone',
      );
    },
  ],
  [
    'end of file inside a frame harms nobody',
    async (t) => {
      const watcher = await t.open();
      const raw = await t.raw();
      await raw.sendBytes(Buffer.of(0, 0, 1, 0, 0x82));
      raw.halfClose();
      await raw.rest();
      assert.equal((await watcher.ask('whoami')).t, 'whoami_report');
    },
  ],
];

export default cases.map(([name, run]) => ({ name: `ending: ${name}`, run }));
