// The same for JavaScript: node programs.mjs URL MODEL [NAME...]. See programs.py.
import { Ollama } from "ollama";
import OpenAI from "openai";
import assert from "node:assert/strict";

const [url, model, ...only] = process.argv.slice(2);
const user = (content) => [{ role: "user", content }];
const HI = user("Say hello. [[tokens:4]]");
const LONG = user("Tell me a long story. [[forever]]");
const CALL = user("What is 1 and 1? [[tool:add]] [[tokens:2]]");
const BROKEN = user("Break. [[error-mid:2]]");
const TOOL = {
  type: "function",
  function: {
    name: "add",
    description: "adds",
    parameters: { type: "object", properties: { a: { type: "integer" } } },
  },
};
const ollama = new Ollama({ host: url });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "nobody reads it", maxRetries: 0 });

const gathered = async (stream) => {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
};
const thrown = async (function_) => {
  try {
    await function_();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
};

const cases = {
  async ollama_list() {
    const { models } = await ollama.list();
    assert.ok(models.some((entry) => entry.name.replace(/:latest$/, "") === model));
  },
  async ollama_show() {
    assert.ok((await ollama.show({ model })).details);
  },
  async ollama_chat() {
    const reply = await ollama.chat({ model, messages: HI, options: { num_predict: 8 } });
    assert.ok(reply.message.content && reply.done && reply.eval_count);
  },
  async ollama_chat_stream() {
    const options = { num_predict: 8 };
    const parts = await gathered(await ollama.chat({ model, messages: HI, stream: true, options }));
    assert.ok(parts.length > 1 && parts.at(-1).done);
    assert.ok(parts.map((part) => part.message.content).join(""));
  },
  async ollama_generate() {
    const reply = await ollama.generate({ model, prompt: HI[0].content, options: { num_predict: 8 } });
    assert.ok(reply.response);
  },
  async "ollama_tools+"() {
    const reply = await ollama.chat({ model, messages: CALL, tools: [TOOL] });
    assert.deepEqual(reply.message.tool_calls[0].function.arguments, { a: 1 });
  },
  async "ollama_embeddings+"() {
    assert.equal((await ollama.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  },
  async "ollama_pull_progress*"() {
    const steps = await gathered(await ollama.pull({ model: "new", stream: true }));
    assert.equal(steps.at(-1).status, "success");
    assert.ok(steps.filter((step) => step.completed).length > 1);
  },
  async ollama_wrong_model() {
    const error = await thrown(() => ollama.chat({ model: "nothing", messages: HI }));
    assert.equal(error.status_code, 404);
    assert.match(error.message, /not found/);
  },
  async ollama_says_no_in_words() {
    const batch = new Ollama({ host: url, headers: { "X-Onegate-Class": "batch" } });
    const error = await thrown(() => batch.chat({ model, messages: HI }));
    assert.equal(error.status_code, 503);
    assert.match(error.message, /paused.*come back in/);
  },
  async "ollama_broken_stream+"() {
    const error = await thrown(async () =>
      gathered(await ollama.chat({ model, messages: BROKEN, stream: true })),
    );
    assert.ok(error.message);
    assert.doesNotMatch(error.message, /Did not receive done/);
  },
  async "ollama_abort+"() {
    const options = { num_predict: 4000 };
    const stream = await ollama.chat({ model, messages: LONG, stream: true, options });
    await thrown(async () => {
      for await (const _ of stream) stream.abort();
    });
    const reply = await ollama.chat({ model, messages: HI, options: { num_predict: 4 } });
    assert.ok(reply.done);
  },
  async openai_models() {
    const found = await gathered(await openai.models.list());
    assert.ok(found.some((entry) => entry.id.replace(/:latest$/, "") === model));
  },
  async openai_chat() {
    const reply = await openai.chat.completions.create({ model, messages: HI, max_tokens: 8 });
    assert.ok(reply.choices[0].message.content);
    assert.ok(reply.usage.completion_tokens);
  },
  async openai_stream() {
    const asked = { model, messages: HI, max_tokens: 8, stream: true };
    const stream_options = { include_usage: true };
    const chunks = await gathered(await openai.chat.completions.create({ ...asked, stream_options }));
    assert.ok(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""));
    assert.ok(chunks.at(-1).usage.completion_tokens);
  },
  async "openai_tools+"() {
    const asked = { model, messages: CALL, tools: [TOOL] };
    const reply = await openai.chat.completions.create(asked);
    assert.equal(reply.choices[0].finish_reason, "tool_calls");
    assert.equal(reply.choices[0].message.tool_calls[0].function.arguments, '{"a": 1}');
    const stream = openai.chat.completions.stream(asked);
    const whole = await stream.finalChatCompletion();
    assert.equal(whole.choices[0].message.tool_calls[0].function.name, "add");
  },
  async "openai_embeddings+"() {
    const packed = await openai.embeddings.create({ model, input: ["a", "b"] });
    assert.equal(packed.data.length, 2);
    assert.equal(packed.data[0].embedding[0], 0.5);
  },
  async openai_wrong_model() {
    const asked = { model: "nothing", messages: HI };
    const error = await thrown(() => openai.chat.completions.create(asked));
    assert.equal(error.status, 404);
    assert.equal(error.code, "model_not_found");
  },
  async openai_says_no_in_words() {
    const headers = { "X-Onegate-Class": "batch" };
    const asked = { model, messages: HI };
    const error = await thrown(() => openai.chat.completions.create(asked, { headers }));
    assert.equal(error.status, 503);
    assert.match(error.message, /come back in/);
  },
  async "openai_broken_stream+"() {
    const asked = { model, messages: BROKEN, stream: true };
    const error = await thrown(async () => gathered(await openai.chat.completions.create(asked)));
    assert.ok(error instanceof OpenAI.APIError);
  },
  async "openai_abort+"() {
    const asked = { model, messages: LONG, max_tokens: 4000, stream: true };
    const stream = await openai.chat.completions.create(asked);
    for await (const _ of stream) break;
    stream.controller.abort();
    const reply = await openai.chat.completions.create({ model, messages: HI, max_tokens: 4 });
    assert.ok(reply.choices.length);
  },
  async "openai_responses*"() {
    const reply = await openai.responses.create({ model, input: "Hi" });
    assert.equal(reply.output_text, "Hello there");
  },
};

let failed = 0;
for (const [name, function_] of Object.entries(cases)) {
  if (only.length && !only.includes(name.replace(/[+*]$/, ""))) continue;
  try {
    await function_();
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}\n${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
