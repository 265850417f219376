// The handshake.

import assert from 'node:assert/strict';
import { assertEnded } from '../context.mjs';

const HELLO = { t: 'hello', features: ['v1'] };

/** The answers to one frame on a connection that has said nothing yet, up to its end. */
async function refusedHello(t, message) {
  const raw = await t.raw({ greeted: false });
  await raw.send(message);
  return raw.rest();
}

const ILL_FORMED = {
  'no features': { t: 'hello' },
  'features without v1': { t: 'hello', features: [] },
  'only features from elsewhere': { t: 'hello', features: ['v9', 'embed'] },
  'features that are no array': { t: 'hello', features: 'v1' },
  'a feature that is no string': { t: 'hello', features: ['v1', 2] },
  'an empty feature': { t: 'hello', features: ['v1', ''] },
  '65 features': { t: 'hello', features: Array.from({ length: 65 }, (_, i) => `v${i}`) },
  'an unknown field': { ...HELLO, colour: 'red' },
  'a nil where none may be': { ...HELLO, app: null },
  'an app that is no string': { ...HELLO, app: 7 },
  'an app of 257 characters': { ...HELLO, app: 'a'.repeat(257) },
  'an app with a line break': { ...HELLO, app: 'a\nb' },
  'an empty model': { ...HELLO, model: '' },
  'an unknown field in on_behalf': { ...HELLO, on_behalf: { source: 'listener', pid: 1 } },
};

const cases = [
  [
    'welcome has every field, and says who we are',
    async (t) => {
      const { welcome } = await t.open({ app: 'conformance' });
      assert.equal(welcome.peer.pid, process.pid);
      assert.equal(welcome.peer.uid, process.getuid());
      assert.equal(welcome.peer.gid, process.getgid());
      assert.deepEqual(welcome.features, ['v1']);
      assert.ok(welcome.version.length > 0);
      assert.ok(welcome.why.length > 0);
      assert.ok(welcome.models.length > 0);
      assert.ok(welcome.limits.max_frame_bytes > 0);
      assert.ok(welcome.limits.in_flight_per_session > 0);
    },
  ],
  [
    'limits.classes are the classes that whoami allows',
    async (t) => {
      const connection = await t.open();
      const { allowed } = await connection.ask('whoami');
      const { classes } = connection.welcome.limits;
      assert.deepEqual(Object.keys(classes).sort(), [...allowed].sort());
      assert.ok(allowed.includes(connection.welcome.ceiling));
      assert.ok(allowed.includes(connection.welcome.class));
    },
  ],
  [
    'features are the common ones; unknown ones are ignored',
    async (t) => {
      const names = t.spec.features.map(([name]) => name);
      const { welcome } = await t.open({ features: [...names, 'telepathy'] });
      assert.ok(welcome.features.includes('v1'));
      for (const feature of welcome.features) assert.ok(names.includes(feature), feature);
      const again = await t.open({ features: ['v1', 'telepathy'] });
      assert.deepEqual(again.welcome.features, ['v1']);
    },
  ],
  [
    'every allowed class can be asked for',
    async (t) => {
      for (const name of t.facts.whoami.allowed) {
        const { welcome } = await t.open({ class: name });
        assert.equal(welcome.class, name);
      }
    },
  ],
  [
    'nil and absence mean the same',
    async (t) => {
      const { welcome } = await t.open({ model: null, class: null, on_behalf: null });
      assert.equal(welcome.class, (await t.open()).welcome.class);
    },
  ],
  [
    'requests may follow without waiting for the welcome',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      await raw.send(HELLO, { t: 'whoami', id: 5 }, { t: 'count', id: 6, prompt: 'one two' });
      const seen = [await raw.next(), await raw.next(), await raw.next()].map((m) => m.t);
      assert.equal(seen[0], 'welcome');
      assert.deepEqual(seen.slice(1).sort(), ['counted', 'whoami_report']);
    },
  ],
  [
    'a refused hello is the one answer to what follows it',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      const requests = [1, 2, 3].map((id) => ({ t: 'generate', id, prompt: 'x' }));
      await raw.send({ ...HELLO, model: 'no-such-model' }, ...requests, { t: 'whoami', id: 4 });
      const answers = await raw.rest();
      assert.equal(answers.length, 1);
      assertEnded(answers, 'wrong_model', 'handshake');
    },
  ],
  [
    'wrong_model lists the models and is not retryable',
    async (t) => {
      const { welcome } = await t.open();
      const answers = await refusedHello(t, { ...HELLO, model: 'no-such-model' });
      assertEnded(answers, 'wrong_model', 'handshake');
      assert.deepEqual(
        answers[0].models,
        welcome.models.map(({ model }) => model),
      );
      assert.equal(answers[0].retryable, false);
    },
  ],
  [
    'the model of the hello may be named',
    async (t) => {
      const { welcome } = await t.open();
      await t.open({ model: welcome.models[0].model });
    },
  ],
  [
    'a class that does not exist is invalid',
    async (t) => {
      const answers = await refusedHello(t, { ...HELLO, class: 'royal' });
      assertEnded(answers, 'invalid', 'handshake');
      assert.equal(answers[0].path, 'class');
    },
  ],
  [
    'a class above the ceiling is not allowed',
    async (t) => {
      assertEnded(
        await refusedHello(t, { ...HELLO, class: 'interactive' }),
        'class_not_allowed',
        'handshake',
      );
    },
    ({ whoami }) => !whoami.allowed.includes('interactive'),
  ],
  [
    'on_behalf is for delegates',
    async (t) => {
      const answers = await refusedHello(t, {
        ...HELLO,
        on_behalf: { source: 'listener', principal: 'door' },
      });
      const { reason } = answers.at(-1);
      assert.ok(['permission', 'unsupported'].includes(reason), reason);
      assertEnded(answers, reason, 'handshake');
    },
    ({ whoami }) => !whoami.delegate,
  ],
  [
    'a second hello ends the connection',
    async (t) => {
      const raw = await t.raw();
      await raw.hello();
      assertEnded(await raw.rest(), 'protocol');
    },
  ],
  [
    'anything before the hello ends the connection',
    async (t) => {
      const early = [
        { t: 'whoami', id: 1 },
        { t: 'generate', id: 1, prompt: 'x' },
        { t: 'cancel', id: 1 },
      ];
      for (const message of early) {
        const answers = await refusedHello(t, message);
        assert.equal(answers.length, 1);
        assertEnded(answers, 'protocol', 'handshake');
      }
    },
  ],
  ...Object.entries(ILL_FORMED).map(([what, message]) => [
    `ill-formed: ${what}`,
    async (t) => assertEnded(await refusedHello(t, message), 'protocol', 'handshake'),
  ]),
  [
    'a connection that says nothing is ended',
    async (t) => {
      const raw = await t.raw({ greeted: false });
      assertEnded(await raw.rest(), 'protocol', 'handshake');
    },
    ({ small }) => small,
  ],
];

export default cases.map(([name, run, needs]) => ({ name: `hello: ${name}`, run, needs }));
