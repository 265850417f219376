// Sampling and stopping: each parameter has its effect or is refused, never ignored.

import assert from 'node:assert/strict';
import { refusal } from '../context.mjs';

const PROMPT = 'Tell me about the sea, at some length.';
const EXACT = { temperature: 0, seed: 7 };

const VALUES = {
  max_tokens: 5,
  min_tokens: 2,
  ignore_eos: true,
  temperature: 0.5,
  top_p: 0.9,
  top_k: 40,
  min_p: 0.05,
  seed: 9223372036854775807n,
  stop: ['§'],
  presence_penalty: 0.5,
  frequency_penalty: -0.5,
  repeat_penalty: 1.1,
  response_format: { type: 'json_object' },
  logprobs: true,
};

const OUTSIDE_PARAMS = {
  raw: { prompt: PROMPT, raw: true },
  suffix: { prompt: PROMPT, suffix: 'The end.' },
  think: { prompt: PROMPT, think: 'high' },
  tools: {
    messages: [{ role: 'user', content: PROMPT }],
    tools: [{ function: { name: 'f', parameters: { type: 'object' } } }],
  },
  prompt_token_ids: { prompt_token_ids: [1, 2, 3] },
  image: {
    messages: [
      {
        role: 'user',
        content: [{ type: 'image', data: Buffer.from('not an image'), media_type: 'image/png' }],
      },
    ],
  },
};

/** The answer, or null where the engine refuses that field as `unsupported`. */
async function answered(t, fields, path) {
  const connection = await t.open();
  const request = connection.generate(fields);
  try {
    return await request.answer();
  } catch (error) {
    if (!error.answer) throw error;
    const seen = JSON.stringify(error.answer);
    assert.equal(error.answer.reason, 'unsupported', seen);
    assert.equal(error.answer.retryable, false, seen);
    if (path !== null) assert.equal(error.answer.path, path, seen);
    return null;
  }
}

const ask = (t, params, path) =>
  answered(t, { prompt: PROMPT, params: { max_tokens: 24, ...params } }, path);

const cases = [
  ...Object.entries(VALUES).map(([name, value]) => [
    `${name} is honoured or unsupported`,
    async (t) => {
      // 2^63 - 1 is beyond what a number of this language holds.
      const params =
        typeof value === 'bigint' ? { [name]: Number.MAX_SAFE_INTEGER } : { [name]: value };
      await ask(t, params, `params.${name}`);
    },
  ]),
  ...Object.entries(OUTSIDE_PARAMS).map(([name, fields]) => [
    `${name} is honoured or unsupported`,
    async (t) => {
      const path = name === 'image' ? 'messages[0].content[0]' : name;
      const params = { max_tokens: 4 };
      const answer = await answered(
        t,
        { ...fields, params },
        path === 'prompt_token_ids' ? null : path,
      );
      if (answer) assert.ok(answer.done.usage.output_tok > 0);
    },
  ]),
  [
    'max_tokens bounds the answer',
    async (t) => {
      const { done } = await ask(t, { max_tokens: 3, ignore_eos: true });
      assert.equal(done.usage.output_tok, 3);
      assert.equal(done.finish_reason, 'length');
    },
  ],
  [
    'min_tokens holds the end off',
    async (t) => {
      const answer = await ask(t, { max_tokens: 200, min_tokens: 150 }, 'params.min_tokens');
      if (answer) assert.ok(answer.done.usage.output_tok >= 150);
    },
  ],
  [
    'a stop string ends the answer before it',
    async (t) => {
      const whole = await ask(t, EXACT);
      const again = await ask(t, EXACT);
      assert.equal(again.text, whole.text, 'the same question, seed and temperature 0');
      const middle = whole.text.slice(Math.floor(whole.text.length / 2)).trim();
      const stop = middle.slice(0, 6);
      const stopped = await ask(t, { ...EXACT, stop: [stop, 'never said'] }, 'params.stop');
      if (!stopped) return;
      assert.equal(stopped.text, whole.text.slice(0, whole.text.indexOf(stop)));
      assert.equal(stopped.done.finish_reason, 'stop');
    },
  ],
  [
    'a stop string across tokens never shows in any chunk',
    async (t) => {
      const whole = await ask(t, EXACT);
      const space = whole.text.indexOf(' ', whole.text.length / 3);
      const stop = whole.text.slice(space - 2, space + 3);
      const stopped = await ask(t, { ...EXACT, stop: [stop] }, 'params.stop');
      if (stopped) assert.equal(stopped.text, whole.text.slice(0, whole.text.indexOf(stop)));
    },
  ],
  [
    'logprobs come where they were asked for',
    async (t) => {
      const answer = await ask(t, { logprobs: true, top_logprobs: 2 }, 'params.logprobs');
      if (!answer) return;
      const found = answer.messages.flatMap((message) => message.logprobs ?? []);
      assert.equal(found.length, answer.done.usage.output_tok);
    },
  ],
  [
    'max_tokens above the maximum of the class is refused',
    async (t) => {
      const connection = await t.open();
      const { classes } = connection.welcome.limits;
      const max_tokens = classes[connection.welcome.class].max_tokens_max + 1;
      const request = connection.generate({ prompt: PROMPT, params: { max_tokens } });
      const failed = await refusal(request.end);
      assert.equal(failed.reason, 'invalid');
      assert.equal(failed.path, 'params.max_tokens');
      assert.deepEqual([failed.limit, failed.used], [max_tokens - 1, max_tokens]);
    },
  ],
];

export default cases.map(([name, run]) => ({ name: `parameters: ${name}`, run }));
