// Text: streamed and whole, alone and many at once, and what comes while it waits.

import assert from 'node:assert/strict';
import { LONG } from '../context.mjs';

const SHORT = { prompt: 'Say something short.', params: { max_tokens: 12, ignore_eos: true } };

/** Asserts the order of one request's messages and that their tokens add up. */
function assertWhole({ messages, done, text }) {
  const tags = messages.map(({ t }) => t);
  assert.match(tags.join(' '), /^(queued )*started ((chunk|paused|resumed) )*done$/);
  const started = messages.find(({ t }) => t === 'started');
  assert.equal(done.rid, started.rid);
  assert.ok(messages.filter(({ t }) => t === 'queued').every(({ rid }) => rid === started.rid));
  const tokens = messages.reduce((sum, { t, n_tok }) => sum + (t === 'chunk' ? n_tok : 0), 0);
  assert.equal(tokens, done.usage.output_tok);
  assert.ok(done.usage.prompt_tok > 0);
  assert.ok(done.timings.e2e_ms >= done.timings.queue_ms);
  return text;
}

const cases = [
  [
    'a prompt, streamed',
    async (t) => {
      const connection = await t.open();
      const answer = await connection.generate(SHORT).answer();
      assert.ok(assertWhole(answer).length > 0);
      assert.ok(answer.messages.filter(({ t: tag }) => tag === 'chunk').length > 1, 'one piece');
      assert.equal(answer.done.usage.output_tok, 12);
      assert.equal(answer.done.finish_reason, 'length');
      assert.equal(answer.done.identity.model, connection.welcome.models[0].model);
    },
  ],
  [
    'messages, streamed',
    async (t) => {
      const connection = await t.open();
      const messages = [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Hello, ' },
            { type: 'text', text: 'you.' },
          ],
        },
        { role: 'assistant', content: 'Hello.' },
        { role: 'user', content: 'And now?' },
      ];
      const answer = await connection.generate({ messages, params: SHORT.params }).answer();
      assert.ok(assertWhole(answer).length > 0);
    },
  ],
  [
    'not streamed: one chunk of text right before done',
    async (t) => {
      const connection = await t.open();
      const streamed = await connection.generate(SHORT).answer();
      const answer = await connection.generate({ ...SHORT, stream: false }).answer();
      assertWhole(answer);
      assert.deepEqual(
        answer.messages.map(({ t: tag }) => tag),
        ['started', 'chunk', 'done'],
      );
      assert.equal(answer.text.length > 0, streamed.text.length > 0);
    },
  ],
  [
    'nil and defaults spelled out mean nothing else',
    async (t) => {
      const connection = await t.open();
      const answer = await connection
        .generate({
          ...SHORT,
          model: null,
          messages: null,
          prompt_token_ids: null,
          tools: null,
          tool_choice: null,
          think: null,
          suffix: null,
          raw: false,
          stream: true,
          class: null,
          ttft_timeout_ms: null,
          timeout_ms: null,
          ticket: null,
          progress: false,
        })
        .answer();
      assertWhole(answer);
    },
  ],
  [
    'no params at all',
    async (t) => {
      const connection = await t.open();
      assertWhole(await connection.generate({ prompt: 'Hi.', stream: false }).answer());
    },
  ],
  [
    'a stale ticket is no error',
    async (t) => {
      const connection = await t.open();
      assertWhole(await connection.generate({ ...SHORT, ticket: 't-nobody-knows' }).answer());
    },
  ],
  [
    'a model by name and every allowed class',
    async (t) => {
      const connection = await t.open();
      const { model } = connection.welcome.models[0];
      for (const name of t.facts.whoami.allowed) {
        assertWhole(await connection.generate({ ...SHORT, model, class: name }).answer());
      }
    },
  ],
  [
    '20 streams on one connection',
    async (t) => {
      const raw = await t.raw();
      const ids = Array.from({ length: 20 }, (_, i) => 1000 - i);
      const wanted = new Map(ids.map((id, i) => [id, 2 + (i % 7)]));
      await raw.send(
        ...ids.map((id) => ({
          t: 'generate',
          id,
          prompt: `Question number ${id}`,
          stream: id % 3 !== 0,
          params: { max_tokens: wanted.get(id), ignore_eos: true },
        })),
      );
      const byId = new Map(ids.map((id) => [id, []]));
      let ends = 0;
      const all = await raw.until((message) => {
        byId.get(message.id).push(message);
        return message.t === 'done' && ++ends === ids.length;
      });
      for (const [id, messages] of byId) {
        assertWhole({ messages, done: messages.at(-1), text: '' });
        assert.equal(messages.at(-1).usage.output_tok, wanted.get(id));
      }
      const rids = new Set(all.filter(({ t: tag }) => tag === 'done').map(({ rid }) => rid));
      assert.equal(rids.size, ids.length, 'two requests share a rid');
      const order = all.filter(({ t: tag }) => tag === 'chunk').map(({ id }) => id);
      const changes = order.filter((id, i) => i > 0 && id !== order[i - 1]).length;
      assert.ok(changes >= ids.length, 'one after the other, not side by side');
    },
  ],
  [
    'questions overtake a running answer',
    async (t) => {
      const connection = await t.open();
      const request = connection.generate(LONG);
      await request.first('chunk');
      assert.equal((await connection.ask('whoami')).t, 'whoami_report');
      assert.notEqual(request.finished, true);
    },
  ],
  [
    'progress: queued comes only where it was asked for',
    async (t) => {
      const { connection, requests } = await t.occupy();
      const asked = connection.generate({ ...SHORT, progress: true });
      const silent = connection.generate(SHORT);
      const queued = await t.within(asked.first('queued'), 'queued');
      assert.equal(queued.position, 1);
      assert.deepEqual(queued.ahead, {});
      assert.equal(queued.limited_by, 'seats');
      for (const request of requests) connection.cancel(request.id);
      assertWhole(await asked.answer());
      const { messages } = await silent.answer();
      assert.ok(messages.every(({ t: tag }) => tag !== 'queued'));
    },
  ],
  [
    'progress: position counts those ahead',
    async (t) => {
      const { connection } = await t.occupy();
      const first = connection.generate({ ...SHORT, progress: true });
      await t.within(first.first('queued'), 'queued');
      const second = connection.generate({ ...SHORT, progress: true });
      const queued = await t.within(second.first('queued'), 'queued');
      assert.equal(queued.position, 2);
      assert.deepEqual(queued.ahead, { [connection.welcome.class]: 1 });
    },
  ],
  [
    'a higher class goes first',
    async (t) => {
      const { connection, requests } = await t.occupy({ class: 'batch' });
      const order = [];
      const note = (name) => async (request) => {
        await request.first('started');
        order.push(name);
        await request.end;
      };
      const slow = connection.generate({ ...SHORT, class: 'batch' });
      const quick = connection.generate({ ...SHORT, class: 'loop' });
      const both = [note('batch')(slow), note('loop')(quick)];
      await t.eventually(
        async () => (await connection.ask('status')).status.gate.queued === 2,
        'two',
      );
      await connection.cancel(requests[0].id);
      await t.within(Promise.all(both), 'both answers');
      assert.deepEqual(order, ['loop', 'batch']);
    },
    ({ small }) => small,
  ],
  [
    'end of file of the client is the end of everything',
    async (t) => {
      const watcher = await t.open();
      const { connection, requests } = await t.occupy();
      connection.generate(SHORT);
      connection.close();
      await t.eventually(async () => {
        const { gate } = (await watcher.ask('status')).status;
        return gate.in_flight === 0 && gate.queued === 0;
      }, 'no request left');
      assert.ok(requests.every((request) => request.error));
    },
  ],
];

export default cases.map(([name, run, needs]) => ({ name: `generate: ${name}`, run, needs }));
