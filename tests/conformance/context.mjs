// What a case is given: connections that close themselves, and the ways to keep an engine busy.

import assert from 'node:assert/strict';
import { Connection } from './client.mjs';
import { Raw } from './raw.mjs';
import { problems } from './spec.mjs';

/** An answer that takes long: it does not end of itself. */
export const LONG = {
  prompt: 'A long story, please.',
  params: { max_tokens: 2500, ignore_eos: true },
};

export class Context {
  #open = [];
  /** Deviations of the daemon's messages from the tables of PROTOCOL.md. */
  deviations = new Set();

  constructor({ path, spec, page, golden, factor, facts, pid }) {
    Object.assign(this, { path, spec, page, golden, factor, facts, pid });
    this.patience_ms = 10000 * factor;
  }

  observe = (message) => {
    for (const problem of problems(this.spec, message)) this.deviations.add(problem);
  };

  /** A well-behaved connection after its welcome. */
  async open(hello = {}) {
    const connection = await Connection.open(this.path, hello, this.observe);
    this.#open.push(connection);
    return connection;
  }

  /** A raw connection, after its welcome unless `greeted` is false. */
  async raw({ greeted = true, hello = {} } = {}) {
    const raw = await Raw.open(this.path, this);
    this.#open.push(raw);
    if (greeted) {
      await raw.hello(hello);
      assert.equal((await raw.next()).t, 'welcome');
    }
    return raw;
  }

  /** Takes every seat of the engine; fulfils with the connection and the requests that hold them. */
  async occupy(fields = {}) {
    const connection = await this.open();
    const { status } = await connection.ask('status');
    const requests = [];
    for (let seat = 0; seat < status.pools[0].seats; seat++) {
      requests.push(connection.generate({ ...LONG, ...fields }));
    }
    for (const request of requests) await this.within(request.first('started'), 'started');
    return { connection, requests };
  }

  /** A promise's value, or an error that says what was waited for. */
  async within(promise, what, ms = this.patience_ms) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  /** Asks until `wanted` answers true. */
  async eventually(wanted, what) {
    const until = Date.now() + this.patience_ms;
    while (!(await wanted())) {
      if (Date.now() > until) throw new Error(`did not come about: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Fulfils once the daemon holds nothing of anybody; leaks show here. */
  async idle() {
    const connection = await Connection.open(this.path);
    try {
      await this.eventually(async () => {
        const { status } = await connection.ask('status');
        const held = status.pools.map((pool) => pool.seats_used + pool.seats_quarantined);
        return status.gate.in_flight + status.gate.queued === 0 && held.every((n) => n === 0);
      }, 'a daemon without requests');
    } finally {
      connection.close();
    }
  }

  closeAll() {
    for (const one of this.#open.splice(0)) one.close();
  }
}

/** The `failed` that a promise rejects with. */
export async function refusal(promise) {
  try {
    const value = await promise;
    return assert.fail(`not refused, but answered: ${JSON.stringify(value).slice(0, 300)}`);
  } catch (error) {
    if (error.answer) return error.answer;
    throw error;
  }
}

/** Asserts that the connection was ended by `failed` without id, and closed. */
export function assertEnded(messages, reason, phase = undefined) {
  const last = messages.at(-1);
  const seen = JSON.stringify(messages).slice(0, 600);
  assert.ok(last, 'closed without a word');
  assert.equal(last.t, 'failed', seen);
  assert.equal(last.id ?? null, null, seen);
  assert.equal(last.reason, reason, seen);
  if (phase) assert.equal(last.phase, phase, seen);
  assert.ok(last.message.length > 0);
}
