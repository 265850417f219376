// Verbs of features, of delegates and of administrators.

import assert from 'node:assert/strict';
import { LONG, refusal } from '../context.mjs';

/** One well-formed request of each verb that belongs to a feature, `settle` apart. */
const FEATURE_VERBS = {
  embed: { input: ['one', 'two'] },
  lease: { prompt_tok: 1, max_tok: 1 },
  load: { model: 'any' },
  unload: { model: 'any' },
  release_engine: {},
  usage: {},
};
const ADMIN_VERBS = {
  pause: { class: 'batch' },
  unpause: { class: 'batch' },
  cancel_any: { rid: 'r-nobody' },
};

const USAGE = { features: ['v1', 'usage'] };
const RELEASE = { features: ['v1', 'release'] };

const admin = ({ whoami }) => whoami.admin === true;
const plain = ({ whoami }) => whoami.admin !== true;

const cases = [
  ...Object.entries(FEATURE_VERBS).map(([verb, fields]) => [
    `${verb} without its feature is unsupported`,
    async (t) => {
      const connection = await t.open();
      const failed = await refusal(connection.ask(verb, fields));
      assert.equal(failed.reason, 'unsupported');
      assert.equal(failed.retryable, false);
      assert.equal((await connection.ask('whoami')).t, 'whoami_report');
    },
  ]),
  [
    'settle of what is no lease has nothing to do, whatever else is wrong',
    async (t) => {
      for (const hello of [{}, { features: ['v1', 'lease'] }]) {
        const raw = await t.raw({ hello });
        for (const fields of [{}, { usage: { prompt_tok: 1, output_tok: 1 } }, { usage: 5 }]) {
          await raw.send({ t: 'settle', id: 3, ...fields });
          assert.deepEqual(await raw.next(), { t: 'ack', id: 3, verb: 'settle', applied: false });
        }
      }
    },
  ],
  [
    'unsupported goes before a mistake and before permission',
    async (t) => {
      const connection = await t.open();
      for (const [verb, fields] of [
        ['load', { model: 5 }],
        ['release_engine', { until_ms: 'never' }],
      ]) {
        assert.equal((await refusal(connection.ask(verb, fields))).reason, 'unsupported');
      }
    },
  ],
  [
    'every verb of a feature that was not offered is unsupported',
    async (t) => {
      const { welcome } = await t.open({ features: t.spec.features.map(([name]) => name) });
      const connection = await t.open();
      for (const [feature, verbs] of t.spec.features) {
        if (feature === 'v1') continue;
        for (const verb of verbs.filter((name) => name in FEATURE_VERBS)) {
          const failed = await refusal(connection.ask(verb, FEATURE_VERBS[verb]));
          assert.equal(failed.reason, 'unsupported', `${verb}; offered: ${welcome.features}`);
        }
      }
    },
  ],
  ...Object.entries(ADMIN_VERBS).map(([verb, fields]) => [
    `${verb} is for administrators`,
    async (t) => {
      const connection = await t.open();
      const failed = await refusal(connection.ask(verb, fields));
      assert.equal(failed.reason, 'permission');
      assert.equal(failed.retryable, false);
      assert.ok(failed.message.startsWith(`${verb} `), failed.message);
    },
    plain,
  ]),
  [
    'pause closes a class to newcomers, unpause opens it',
    async (t) => {
      const connection = await t.open();
      const running = connection.generate({ ...LONG, class: 'batch' });
      await running.first('chunk');
      assert.equal((await connection.ask('pause', { class: 'batch' })).verb, 'pause');
      try {
        const failed = await refusal(connection.generate({ prompt: 'Hi', class: 'batch' }).end);
        assert.equal(failed.reason, 'paused');
        assert.equal(failed.retryable, true);
        const { classes } = (await connection.ask('status')).status;
        assert.equal(classes.find(({ name }) => name === 'batch').paused, true);
        assert.equal(classes.find(({ name }) => name === 'loop').paused, false);
        const report = await connection.ask('capacity', { prompt_tok: 1, class: 'batch' });
        assert.deepEqual([report.verdict, report.reason], ['refuse', 'paused']);
        assert.notEqual(running.finished, true, 'what runs goes on');
        await connection.generate({ prompt: 'Hi', class: 'loop', params: { max_tokens: 1 } }).end;
      } finally {
        assert.equal((await connection.ask('unpause', { class: 'batch' })).verb, 'unpause');
      }
      await connection.generate({ prompt: 'Hi', class: 'batch', params: { max_tokens: 1 } }).end;
    },
    admin,
  ],
  [
    'pause until then opens by itself',
    async (t) => {
      const connection = await t.open();
      await connection.ask('pause', { class: 'batch', until_ms: Date.now() + 700 * t.factor });
      const failed = await refusal(connection.generate({ prompt: 'Hi', class: 'batch' }).end);
      assert.equal(failed.reason, 'paused');
      assert.ok(failed.retry_after_ms > 0 && failed.retry_after_ms <= 700 * t.factor);
      await t.eventually(async () => {
        const { classes } = (await connection.ask('status')).status;
        return !classes.find(({ name }) => name === 'batch').paused;
      }, 'the class opens');
      await connection.generate({ prompt: 'Hi', class: 'batch', params: { max_tokens: 1 } }).end;
    },
    admin,
  ],
  [
    'unpause of an open class has nothing to do',
    async (t) => {
      const connection = await t.open();
      assert.equal((await connection.ask('unpause', { class: 'batch' })).applied, false);
    },
    admin,
  ],
  [
    'pause of a class that does not exist is invalid',
    async (t) => {
      const connection = await t.open();
      for (const verb of ['pause', 'unpause']) {
        const failed = await refusal(connection.ask(verb, { class: 'royal' }));
        assert.deepEqual([failed.reason, failed.path], ['invalid', 'class']);
      }
    },
    admin,
  ],
  [
    'cancel_any ends a request by its rid',
    async (t) => {
      const owner = await t.open();
      const request = owner.generate(LONG);
      const { rid } = await request.first('started');
      const administrator = await t.open();
      const ack = await administrator.ask('cancel_any', { rid });
      assert.equal(ack.verb, 'cancel_any');
      assert.notEqual(ack.applied, false);
      assert.equal((await refusal(request.end)).reason, 'cancelled');
      assert.equal((await administrator.ask('cancel_any', { rid })).applied, false);
    },
    admin,
  ],
  [
    'usage counts what has just been used',
    async (t) => {
      const connection = await t.open(USAGE);
      const { principal } = await connection.ask('whoami');
      const mine = async () => {
        const { rows } = await connection.ask('usage', { since_ms: Date.now() });
        const row = rows.find((r) => r.principal === principal && r.class === 'batch');
        return row ?? { requests: {}, output_tok: 0 };
      };
      const before = await mine();
      const request = { prompt: 'Hi', class: 'batch', params: { max_tokens: 3, ignore_eos: true } };
      await connection.generate(request).end;
      const after = await mine();
      assert.equal(after.requests.finished, (before.requests.finished ?? 0) + 1);
      assert.equal(after.output_tok, (before.output_tok ?? 0) + 3);
      assert.match(after.day, /^\d{4}-\d\d-\d\d$/);
    },
  ],
  [
    'usage since tomorrow is nothing',
    async (t) => {
      const connection = await t.open(USAGE);
      const since_ms = Date.now() + 2 * 86400000;
      assert.deepEqual((await connection.ask('usage', { since_ms })).rows, []);
    },
  ],
  [
    'usage is told to everybody, of others to administrators',
    async (t) => {
      const connection = await t.open(USAGE);
      const { admin, principal } = await connection.ask('whoami');
      const report = await connection.ask('usage');
      assert.equal(report.everybody === true, admin === true);
      if (!admin) assert.ok(report.rows.every((row) => row.principal === principal));
    },
  ],
  [
    'release_engine is for administrators',
    async (t) => {
      const connection = await t.open(RELEASE);
      for (const fields of [{}, { now: true }, { end: true }]) {
        const failed = await refusal(connection.ask('release_engine', fields));
        assert.equal(failed.reason, 'permission');
      }
    },
    plain,
  ],
  [
    'release_engine frees the device, and newcomers are told until when',
    async (t) => {
      const connection = await t.open(RELEASE);
      const until_ms = Date.now() + 600000;
      const ack = await connection.ask('release_engine', { until_ms });
      assert.equal(ack.verb, 'release_engine');
      assert.notEqual(ack.applied, false);
      try {
        const failed = await refusal(connection.generate({ prompt: 'Hi' }).end);
        assert.equal(failed.reason, 'released');
        assert.equal(failed.retryable, true);
        assert.ok(failed.retry_after_ms > 0 && failed.retry_after_ms <= 600000);
        const { pools } = (await connection.ask('status')).status;
        assert.ok(pools.every(({ state }) => state === 'released'));
        assert.ok(Math.abs(pools[0].released_until_ms - until_ms) < 1000);
        const report = await connection.ask('capacity', { prompt_tok: 1 });
        assert.deepEqual([report.verdict, report.reason], ['refuse', 'released']);
      } finally {
        assert.notEqual((await connection.ask('release_engine', { end: true })).applied, false);
      }
      await connection.generate({ prompt: 'Hi', params: { max_tokens: 1 } }).end;
      assert.equal((await connection.ask('release_engine', { end: true })).applied, false);
    },
    admin,
  ],
  [
    'release_engine waits for what runs, unless it is now',
    async (t) => {
      const connection = await t.open(RELEASE);
      const running = connection.generate(LONG);
      await running.first('chunk');
      let free = false;
      const released = connection.ask('release_engine').then((ack) => {
        free = true;
        return ack;
      });
      assert.equal((await refusal(connection.generate({ prompt: 'Hi' }).end)).reason, 'released');
      assert.equal(free, false);
      const now = connection.ask('release_engine', { now: true });
      try {
        const failed = await refusal(running.end);
        assert.equal(failed.reason, 'released');
        assert.equal('retry_after_ms' in failed, false);
        for (const ack of [await released, await now]) assert.notEqual(ack.applied, false);
      } finally {
        await connection.ask('release_engine', { end: true });
      }
      await connection.generate({ prompt: 'Hi', params: { max_tokens: 1 } }).end;
    },
    admin,
  ],
  [
    'release_engine until a time comes back by itself',
    async (t) => {
      const connection = await t.open(RELEASE);
      await connection.ask('release_engine', { until_ms: Date.now() + 700 * t.factor });
      await t.eventually(async () => {
        const { pools } = (await connection.ask('status')).status;
        return pools.every(({ state }) => state !== 'released');
      }, 'the device is back');
      await connection.generate({ prompt: 'Hi', params: { max_tokens: 1 } }).end;
    },
    admin,
  ],
  [
    'release_engine with a time that has passed, or two minds, is invalid',
    async (t) => {
      const connection = await t.open(RELEASE);
      for (const [fields, path] of [
        [{ until_ms: 1 }, 'until_ms'],
        [{ end: true, until_ms: Date.now() + 60000 }, 'until_ms'],
        [{ end: true, now: true }, 'now'],
      ]) {
        const failed = await refusal(connection.ask('release_engine', fields));
        assert.deepEqual([failed.reason, failed.path], ['invalid', path]);
      }
    },
    admin,
  ],
];

export default cases.map(([name, run, needs]) => ({ name: `verbs: ${name}`, run, needs }));
