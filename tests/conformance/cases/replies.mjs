// The questions that are answered at once.

import assert from 'node:assert/strict';
import { LONG, refusal } from '../context.mjs';

const cases = [
  [
    'whoami',
    async (t) => {
      const connection = await t.open();
      const report = await connection.ask('whoami');
      assert.deepEqual(report.peer, connection.welcome.peer);
      assert.equal(report.class, connection.welcome.class);
      assert.equal(report.ceiling, connection.welcome.ceiling);
      assert.ok(report.allowed.includes(report.class));
      assert.ok(report.allowed.includes(report.ceiling));
      assert.ok(report.why.length > 0);
      assert.ok(report.principal.length > 0);
    },
  ],
  [
    'status of an idle daemon',
    async (t) => {
      const connection = await t.open();
      const report = await connection.ask('status');
      const { status } = report;
      assert.equal(status.state, 'serving');
      assert.equal(status.version, connection.welcome.version);
      assert.equal(status.gate.queued, 0);
      assert.equal(status.gate.limited_by, null);
      assert.ok(status.gate.sessions >= 1);
      assert.equal(report.requests ?? null, null);
      assert.deepEqual(
        status.pools.map(({ model }) => model),
        connection.welcome.models.map(({ model }) => model),
      );
      const ranks = status.classes.map(({ rank }) => rank);
      assert.deepEqual(
        ranks,
        [...ranks].sort((a, b) => a - b),
        'not in order of rank',
      );
      const names = status.classes.map(({ name }) => name);
      for (const name of t.facts.whoami.allowed) assert.ok(names.includes(name));
    },
  ],
  [
    'status with detail lists live requests',
    async (t) => {
      const connection = await t.open();
      const idle = await connection.ask('status', { detail: true });
      assert.deepEqual(idle.requests, []);
      const request = connection.generate(LONG);
      const { rid } = await request.first('started');
      await request.first('chunk');
      const { requests, status } = await connection.ask('status', { detail: true });
      assert.equal(requests.length, 1);
      assert.equal(requests[0].rid, rid);
      assert.equal(requests[0].mine, true);
      assert.equal(requests[0].class, connection.welcome.class);
      assert.ok(requests[0].output_tok > 0 && requests[0].prompt_tok > 0);
      assert.ok(!JSON.stringify(requests).includes('story'), 'shows a text');
      assert.equal(status.gate.in_flight, 1);
      assert.equal(status.classes.find(({ name }) => name === requests[0].class).running, 1);
    },
  ],
  [
    'count of a prompt',
    async (t) => {
      const connection = await t.open();
      const short = await connection.ask('count', { prompt: 'one' });
      const long = await connection.ask('count', { prompt: 'one two three four five six seven' });
      assert.ok(short.n_tok >= 1);
      assert.ok(long.n_tok > short.n_tok);
      assert.equal(long.exact, short.exact);
    },
  ],
  [
    'count of a conversation',
    async (t) => {
      const connection = await t.open();
      const messages = [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Hello.' },
      ];
      const one = await connection.ask('count', { messages: messages.slice(0, 1) });
      const two = await connection.ask('count', { messages });
      assert.ok(two.n_tok > one.n_tok);
    },
  ],
  [
    'count agrees with usage',
    async (t) => {
      const connection = await t.open();
      const messages = [{ role: 'user', content: 'How many tokens are in this sentence?' }];
      const { n_tok, exact } = await connection.ask('count', { messages });
      const { usage } = await connection.generate({ messages, params: { max_tokens: 1 } }).end;
      if (exact) assert.equal(usage.prompt_tok, n_tok);
    },
  ],
  [
    'count of a model that is not there',
    async (t) => {
      const connection = await t.open();
      const failed = await refusal(connection.ask('count', { prompt: 'x', model: 'nope' }));
      assert.equal(failed.reason, 'wrong_model');
      assert.ok(failed.models.length > 0);
    },
  ],
  [
    'capacity of an idle daemon',
    async (t) => {
      const connection = await t.open();
      const report = await connection.ask('capacity', { prompt_tok: 10, max_tok: 10 });
      assert.equal(report.verdict, 'start');
      assert.equal(report.position ?? 0, 0);
      assert.equal(report.reason ?? null, null);
    },
  ],
  [
    'capacity of a busy daemon',
    async (t) => {
      const { connection } = await t.occupy();
      const report = await connection.ask('capacity', { prompt_tok: 10, max_tok: 10 });
      assert.equal(report.verdict, 'queue');
      assert.equal(report.limited_by, 'seats');
      assert.equal(report.position, 1, 'nobody waits before it');
    },
  ],
  [
    'capacity of what never fits',
    async (t) => {
      const connection = await t.open();
      const report = await connection.ask('capacity', { prompt_tok: 2 ** 32 - 1 });
      assert.equal(report.verdict, 'refuse');
      assert.equal(report.reason, 'too_large');
      assert.ok(report.used > report.limit);
    },
  ],
  [
    'capacity of what cannot even be asked',
    async (t) => {
      const connection = await t.open();
      for (const [fields, reason] of [
        [{ model: 'nope' }, 'wrong_model'],
        [{ class: 'royal' }, 'invalid'],
        [{ class: 'royal', model: 'nope' }, 'invalid'],
      ]) {
        const failed = await refusal(connection.ask('capacity', { prompt_tok: 1, ...fields }));
        assert.equal(failed.reason, reason);
      }
    },
  ],
  [
    'metrics are in the Prometheus text format',
    async (t) => {
      const connection = await t.open();
      const { text } = await connection.ask('metrics');
      const lines = text.split('\n').filter((line) => line !== '');
      assert.ok(lines.length > 0);
      for (const line of lines) {
        assert.match(line, /^(# (HELP|TYPE|EOF|UNIT)\b.*|[a-zA-Z_:][\w:]*(\{.*\})? \S+( \d+)?)$/);
      }
      assert.ok(lines.some((line) => line.startsWith('# TYPE ')));
    },
  ],
  [
    'an id is free again after its answer',
    async (t) => {
      const raw = await t.raw();
      for (const verb of ['whoami', 'status', 'metrics', 'whoami']) {
        await raw.send({ t: verb, id: 1 });
        assert.equal((await raw.next()).t, `${verb}_report`);
      }
    },
  ],
];

export default cases.map(([name, run]) => ({ name: `replies: ${name}`, run }));
