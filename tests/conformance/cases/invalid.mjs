// Mistakes inside a request: `invalid` for its id alone, with the path of the field.

import assert from 'node:assert/strict';
import { encode } from '@msgpack/msgpack';
import { LONG } from '../context.mjs';
import { doctored } from '../raw.mjs';

const user = (content) => ({ role: 'user', content });
const hi = { prompt: 'Hi' };
const tool = (name, more = {}) => ({ function: { name, ...more } });
const talk = { messages: [user('Hi')] };
const called = (call) => ({
  messages: [user('a'), { role: 'assistant', tool_calls: [call] }, user('b')],
});
const params = (fields) => ({ ...hi, params: fields });

/** [what, fields of the generate, the path that `failed` names] */
const GENERATE = [
  ['a prompt that is a number', { prompt: 7 }, 'prompt'],
  ['a prompt that is bin', { prompt: Buffer.from('Hi') }, 'prompt'],
  ['an empty prompt', { prompt: '' }, 'prompt'],
  ['a prompt with NUL', { prompt: 'a\0b' }, 'prompt'],
  ['a message with NUL', { messages: [user('a'), user('a\0b')] }, 'messages[1].content'],
  ['a stop string with NUL', params({ stop: ['a', '\0'] }), 'params.stop[1]'],
  ['a model with a line break', { ...hi, model: 'a\nb' }, 'model'],
  ['neither prompt nor messages nor tokens', {}, 'prompt'],
  ['both prompt and messages', { ...hi, ...talk }, 'messages'],
  ['both prompt and prompt_token_ids', { ...hi, prompt_token_ids: [1] }, 'prompt_token_ids'],
  ['empty messages', { messages: [] }, 'messages'],
  ['empty prompt_token_ids', { prompt_token_ids: [] }, 'prompt_token_ids'],
  ['a token id below 0', { prompt_token_ids: [1, -1] }, 'prompt_token_ids[1]'],
  ['a token id that is a float', { prompt_token_ids: [1.5] }, 'prompt_token_ids[0]'],
  ['messages that are no array', { messages: user('Hi') }, 'messages'],
  ['a message that is a string', { messages: ['Hi'] }, 'messages[0]'],
  ['a message without role', { messages: [{ content: 'Hi' }] }, 'messages[0].role'],
  ['an unknown role', { messages: [{ role: 'robot', content: 'Hi' }] }, 'messages[0].role'],
  ['a message without content', { messages: [{ role: 'user' }] }, 'messages[0].content'],
  ['content that is a number', { messages: [user('a'), user(7)] }, 'messages[1].content'],
  ['an unknown part', { messages: [user([{ type: 'song' }])] }, 'messages[0].content[0].type'],
  ['a part without type', { messages: [user([{ text: 'a' }])] }, 'messages[0].content[0].type'],
  [
    'text in a part that is a number',
    { messages: [user([{ type: 'text', text: 7 }])] },
    'messages[0].content[0].text',
  ],
  [
    'an unknown field of a message',
    { messages: [{ ...user('a'), mood: 'good' }] },
    'messages[0].mood',
  ],
  [
    'an image that is text',
    {
      messages: [user([{ type: 'image', data: 'abc', media_type: 'image/png' }])],
    },
    'messages[0].content[0].data',
  ],
  [
    'an image of no image type',
    {
      messages: [user([{ type: 'image', data: Buffer.of(1), media_type: 'text/html' }])],
    },
    'messages[0].content[0].media_type',
  ],
  [
    'an image from the system',
    {
      messages: [
        {
          role: 'system',
          content: [{ type: 'image', data: Buffer.of(1), media_type: 'image/png' }],
        },
        user('a'),
      ],
    },
    'messages[0].content[0]',
  ],
  [
    'tool calls in the last message',
    {
      messages: [
        user('a'),
        { role: 'assistant', tool_calls: [{ id: 'c', function: { name: 'f', arguments: '{}' } }] },
      ],
    },
    'messages[1].tool_calls',
  ],
  [
    'tool calls of the user',
    {
      messages: [
        { ...user('a'), tool_calls: [{ id: 'c', function: { name: 'f', arguments: '{}' } }] },
        user('b'),
      ],
    },
    'messages[0].tool_calls',
  ],
  [
    'arguments that are no string',
    called({ id: 'c', function: { name: 'f', arguments: {} } }),
    'messages[1].tool_calls[0].function.arguments',
  ],
  [
    'a tool answer that names no call',
    { messages: [user('a'), { role: 'tool', content: 'x' }] },
    'messages[1].tool_call_id',
  ],
  ['tools with a prompt', { ...hi, tools: [tool('f')] }, 'tools'],
  ['two tools of one name', { ...talk, tools: [tool('f'), tool('f')] }, 'tools[1].function.name'],
  ['a tool without a name', { ...talk, tools: [{ function: {} }] }, 'tools[0].function.name'],
  [
    'a schema that is no map',
    { ...talk, tools: [tool('f', { parameters: [] })] },
    'tools[0].function.parameters',
  ],
  [
    'a choice that is no tool',
    {
      ...talk,
      tools: [tool('f')],
      tool_choice: { function: { name: 'g' } },
    },
    'tool_choice.function.name',
  ],
  [
    'a choice of an unknown word',
    { ...talk, tools: [tool('f')], tool_choice: 'perhaps' },
    'tool_choice',
  ],
  ['an unknown way to think', { ...hi, think: 'harder' }, 'think'],
  ['suffix with messages', { ...talk, suffix: 'x' }, 'suffix'],
  ['raw with messages', { ...talk, raw: true }, 'raw'],
  ['raw that is nil', { ...hi, raw: null }, 'raw'],
  ['stream that is a number', { ...hi, stream: 1 }, 'stream'],
  ['params that are nil', { ...hi, params: null }, 'params'],
  ['params that are an array', { ...hi, params: [] }, 'params'],
  ['an unknown parameter', params({ temprature: 1 }), 'params.temprature'],
  ['a parameter that is nil', params({ max_tokens: null }), 'params.max_tokens'],
  ['max_tokens 0', params({ max_tokens: 0 }), 'params.max_tokens'],
  ['max_tokens below 0', params({ max_tokens: -5 }), 'params.max_tokens'],
  ['max_tokens above 4294967295', params({ max_tokens: 2 ** 32 }), 'params.max_tokens'],
  ['max_tokens that is a string', params({ max_tokens: '5' }), 'params.max_tokens'],
  ['max_tokens that is a bool', params({ max_tokens: true }), 'params.max_tokens'],
  ['max_tokens that is a fraction', params({ max_tokens: 5.5 }), 'params.max_tokens'],
  ['min_tokens above max_tokens', params({ max_tokens: 2, min_tokens: 3 }), 'params.min_tokens'],
  ['temperature NaN', params({ temperature: NaN }), 'params.temperature'],
  ['temperature infinite', params({ temperature: Infinity }), 'params.temperature'],
  ['temperature below 0', params({ temperature: -0.1 }), 'params.temperature'],
  ['temperature above 2', params({ temperature: 2.1 }), 'params.temperature'],
  ['temperature that is a string', params({ temperature: '1' }), 'params.temperature'],
  ['top_p 0', params({ top_p: 0 }), 'params.top_p'],
  ['top_p above 1', params({ top_p: 1.1 }), 'params.top_p'],
  ['top_p NaN', params({ top_p: NaN }), 'params.top_p'],
  ['top_k below 0', params({ top_k: -1 }), 'params.top_k'],
  ['min_p above 1', params({ min_p: 1.5 }), 'params.min_p'],
  ['seed below 0', params({ seed: -1 }), 'params.seed'],
  ['stop that is a string', params({ stop: 'x' }), 'params.stop'],
  ['17 stops', params({ stop: Array(17).fill('x') }), 'params.stop'],
  ['an empty stop', params({ stop: ['a', ''] }), 'params.stop[1]'],
  ['a stop of 1025 code points', params({ stop: ['\u{1F6D1}'.repeat(1025)] }), 'params.stop[0]'],
  ['a stop of 1025 characters', params({ stop: ['x'.repeat(1025)] }), 'params.stop[0]'],
  ['presence_penalty above 2', params({ presence_penalty: 3 }), 'params.presence_penalty'],
  ['frequency_penalty below -2', params({ frequency_penalty: -3 }), 'params.frequency_penalty'],
  ['repeat_penalty 0', params({ repeat_penalty: 0 }), 'params.repeat_penalty'],
  ['top_logprobs without logprobs', params({ top_logprobs: 3 }), 'params.top_logprobs'],
  ['top_logprobs above 20', params({ logprobs: true, top_logprobs: 21 }), 'params.top_logprobs'],
  [
    'an unknown response_format',
    params({ response_format: { type: 'xml' } }),
    'params.response_format.type',
  ],
  [
    'json_schema without a schema',
    params({ response_format: { type: 'json_schema' } }),
    'params.response_format.json_schema',
  ],
  [
    'a schema without json_schema',
    params({
      response_format: { type: 'text', json_schema: { schema: {} } },
    }),
    'params.response_format.json_schema',
  ],
  ['ttft_timeout_ms 0', { ...hi, ttft_timeout_ms: 0 }, 'ttft_timeout_ms'],
  ['timeout_ms below 0', { ...hi, timeout_ms: -1 }, 'timeout_ms'],
  ['timeout_ms that is a fraction', { ...hi, timeout_ms: 1.5 }, 'timeout_ms'],
  ['a class that does not exist', { ...hi, class: 'royal' }, 'class'],
  ['an empty class', { ...hi, class: '' }, 'class'],
  ['an empty model', { ...hi, model: '' }, 'model'],
  ['an empty ticket', { ...hi, ticket: '' }, 'ticket'],
  [
    'a nested field of 300000 bytes',
    params({
      response_format: {
        type: 'json_schema',
        json_schema: { schema: { description: 'x'.repeat(270000) } },
      },
    }),
    'params',
  ],
  [
    'a schema of 70 levels',
    params({
      response_format: {
        type: 'json_schema',
        json_schema: { schema: nested(70) },
      },
    }),
    'params.response_format.json_schema.schema',
  ],
];

const OTHERS = [
  ['count of nothing', { t: 'count' }, 'prompt'],
  ['count of an empty prompt', { t: 'count', prompt: '' }, 'prompt'],
  ['count of both', { t: 'count', prompt: 'a', messages: [user('a')] }, 'messages'],
  ['count with a wrong message', { t: 'count', messages: [{ role: 'robot' }] }, 'messages[0].role'],
  ['capacity without a size', { t: 'capacity' }, 'prompt_tok'],
  ['capacity of less than nothing', { t: 'capacity', prompt_tok: -1 }, 'prompt_tok'],
  ['capacity of a fraction', { t: 'capacity', prompt_tok: 1.5 }, 'prompt_tok'],
  ['status with a detail that is a string', { t: 'status', detail: 'yes' }, 'detail'],
];

function nested(levels) {
  return levels === 0 ? {} : { properties: nested(levels - 1) };
}

/** Sends `payload` as request 7 between two others; its `failed`, after the others were answered. */
async function onlyThatId(t, payload) {
  const raw = await t.raw();
  await raw.send({ t: 'generate', id: 1, prompt: 'Hi', params: { max_tokens: 3 } });
  await raw.sendPayload(payload);
  await raw.send({ t: 'whoami', id: 8 });
  const ends = new Map();
  await raw.until((message) => {
    const { t: tag, id } = message;
    if (tag === 'failed' || tag === 'done' || tag === 'whoami_report') ends.set(id, message);
    else assert.notEqual(id, 7, `not refused: ${JSON.stringify(message)}`);
    return ends.size === 3;
  });
  assert.equal(ends.get(1)?.t, 'done', 'another request suffered');
  assert.equal(ends.get(8)?.t, 'whoami_report', 'another request suffered');
  return ends.get(7);
}

async function isInvalid(t, payload, path) {
  const failed = await onlyThatId(t, payload);
  const seen = JSON.stringify(failed);
  assert.equal(failed.reason, 'invalid', seen);
  assert.equal(failed.retryable, false, seen);
  assert.equal(failed.phase, 'arrival', seen);
  assert.ok(failed.message.length > 0);
  assert.equal(failed.path, path, seen);
}

const FIVE_AND_A_HALF = Buffer.from('cb4016000000000000', 'hex');
const FIVE = Buffer.from('cb4014000000000000', 'hex');

const cases = [
  ...GENERATE.map(([what, fields, path]) => [
    what,
    (t) => isInvalid(t, encode({ t: 'generate', id: 7, ...fields }), path),
  ]),
  ...OTHERS.map(([what, message, path]) => [
    what,
    (t) => isInvalid(t, encode({ ...message, id: 7 }), path),
  ]),
  [
    'max_tokens that is a float without fraction',
    (t) =>
      isInvalid(
        t,
        doctored({ t: 'generate', id: 7, ...params({ max_tokens: 5.5 }) }, FIVE_AND_A_HALF, FIVE),
        'params.max_tokens',
      ),
  ],
  [
    'a prompt that is no UTF-8',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, prompt: 'Good day' },
          Buffer.from('Good'),
          Buffer.from('G\xff\xfed', 'latin1'),
        ),
        'prompt',
      ),
  ],
  [
    'a prompt with a lone surrogate',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, prompt: 'day abc' },
          Buffer.from('abc'),
          Buffer.of(0xed, 0xa0, 0x80),
        ),
        'prompt',
      ),
  ],
  [
    'a text of a message that is no UTF-8',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, messages: [user('a'), user('Good day')] },
          Buffer.from('Good'),
          Buffer.from('G\xff\xfed', 'latin1'),
        ),
        'messages[1].content',
      ),
  ],
  [
    'a stop string that is no UTF-8',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, ...params({ stop: ['a', 'Good day'] }) },
          Buffer.from('Good'),
          Buffer.from('G\xff\xfed', 'latin1'),
        ),
        'params.stop[1]',
      ),
  ],
  [
    'an extension type far inside',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, messages: [user('abcd')] },
          Buffer.from('\xa4abcd', 'latin1'),
          Buffer.of(0xd6, 0xff, 0, 0, 0, 0),
        ),
        'messages[0].content',
      ),
  ],
  [
    'an extension type',
    (t) =>
      isInvalid(
        t,
        doctored(
          { t: 'generate', id: 7, prompt: 'abcd' },
          Buffer.from('\xa4abcd', 'latin1'),
          Buffer.of(0xd6, 0xff, 0, 0, 0, 0),
        ),
        'prompt',
      ),
  ],
  [
    'a mistake under a live id ends the first one too',
    async (t) => {
      const raw = await t.raw();
      await raw.send({ t: 'generate', id: 1, ...LONG });
      await raw.until((message) => message.t === 'started');
      await raw.send({ t: 'generate', id: 1, ...params({ temperature: NaN }) });
      const [failed] = (await raw.until((message) => message.t === 'failed')).slice(-1);
      assert.deepEqual([failed.id, failed.reason], [1, 'invalid']);
      await raw.send({ t: 'generate', id: 1, prompt: 'Hi', params: { max_tokens: 2 } });
      const later = await raw.until((message) => message.t === 'done' || message.t === 'failed');
      assert.equal(later[0].t, 'started', 'the first one went on after its failed');
      assert.equal(later.at(-1).t, 'done');
    },
  ],
];

export default cases.map(([name, run]) => ({ name: `invalid: ${name}`, run }));
