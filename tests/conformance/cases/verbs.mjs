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
];

export default cases.map(([name, run, needs]) => ({ name: `verbs: ${name}`, run, needs }));
