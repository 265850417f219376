// A connection without manners: sends any bytes, and gives every message that comes back in order.

import { Buffer } from 'node:buffer';
import { encode } from '@msgpack/msgpack';
import { FrameReader, decodeMessage, encodeMessage, frame, openSocket } from './client.mjs';

export class Raw {
  #socket;
  #messages = [];
  #waiting = [];
  #reader = new FrameReader();
  #patience_ms;
  #observe;

  static async open(path, { patience_ms, observe = () => {} }) {
    const raw = new Raw(patience_ms, observe);
    raw.#attach(await openSocket(path, { onBytes: (bytes) => raw.#take(bytes) }));
    return raw;
  }

  constructor(patience_ms, observe) {
    this.#patience_ms = patience_ms;
    this.#observe = observe;
    this.#reader.maxBytes = 2 ** 32 - 1;
  }

  #attach(socket) {
    this.#socket = socket;
    // A daemon that closes with bytes of ours unread shows as ECONNRESET: an end of file too.
    socket.on('error', () => this.#over());
    socket.on('unwritable', () => (this.unwritable = true));
    socket.on('end', () => this.#over());
    socket.on('close', () => this.#over());
  }

  #take(bytes) {
    for (const payload of this.#reader.push(bytes)) {
      const message = decodeMessage(payload);
      this.#observe(message);
      this.#messages.push(message);
    }
    this.#wake();
  }

  #wake() {
    for (const resume of this.#waiting.splice(0)) resume();
  }

  #over() {
    this.ended = true;
    this.#wake();
  }

  /** Fulfils once the kernel has taken or refused the bytes; `unwritable` tells which. */
  sendBytes(bytes) {
    return new Promise((resolve) => this.#socket.write(bytes, resolve));
  }

  sendPayload(payload) {
    return this.sendBytes(frame(payload));
  }

  send(...messages) {
    return this.sendBytes(Buffer.concat(messages.map(encodeMessage)));
  }

  hello(fields = {}) {
    return this.send({ t: 'hello', features: ['v1'], ...fields });
  }

  /** The next message, or null at the end of the stream. Throws when neither comes in time. */
  async next(patience_ms = this.#patience_ms) {
    const until = Date.now() + patience_ms;
    while (this.#messages.length === 0) {
      if (this.ended) return null;
      const left = until - Date.now();
      if (left <= 0) throw new Error(`nothing came from the daemon within ${patience_ms} ms`);
      await this.#change(left);
    }
    return this.#messages.shift();
  }

  #change(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Messages up to the first that fulfils `wanted`, which is the last of them. */
  async until(wanted, patience_ms) {
    const seen = [];
    for (;;) {
      const message = await this.next(patience_ms);
      if (message === null) {
        throw new Error(`the daemon closed first; before: ${JSON.stringify(seen).slice(0, 600)}`);
      }
      seen.push(message);
      if (wanted(message)) return seen;
    }
  }

  /** Everything up to the end of the stream. */
  async rest(patience_ms) {
    const seen = [];
    for (;;) {
      const message = await this.next(patience_ms);
      if (message === null) return seen;
      seen.push(message);
    }
  }

  stopReading() {
    this.#socket.pause();
  }

  goOnReading() {
    this.#socket.resume();
  }

  halfClose() {
    this.#socket.end();
  }

  close() {
    this.#socket.destroy();
  }
}

/** The payload of `message` with the bytes of `from` (which must occur once) replaced by `to`. */
export function doctored(message, from, to) {
  const payload = Buffer.from(encode(message));
  const at = payload.indexOf(from);
  if (at < 0 || payload.indexOf(from, at + 1) >= 0) throw new Error('not there exactly once');
  return Buffer.concat([payload.subarray(0, at), to, payload.subarray(at + from.length)]);
}
