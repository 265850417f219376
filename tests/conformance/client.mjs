// A client of the onegate protocol, version 1, written from PROTOCOL.md alone.

import { Buffer } from 'node:buffer';
import { existsSync } from 'node:fs';
import net from 'node:net';
import { decode, encode } from '@msgpack/msgpack';

const DEFAULT_MAX_FRAME_BYTES = 8388608;
const HEADER_BYTES = 4;
const SYSTEM_SOCKET = '/run/onegate/onegate.sock';

/** The daemon refused a request, or ended the connection; `answer` is its `failed` message. */
export class Failed extends Error {
  constructor(answer) {
    super(`${answer.reason}: ${answer.message}`);
    this.name = 'Failed';
    this.answer = answer;
  }
}

/** The connection ended, or could not be followed, without a `failed` that says why. */
export class Gone extends Error {
  constructor(message, cause) {
    super(message, { cause });
    this.name = 'Gone';
  }
}

/** The path to connect to, by the rules of "Connecting". */
export function socketPath(environment = process.env, exists = existsSync) {
  if (environment.ONEGATE_SOCKET) return environment.ONEGATE_SOCKET;
  const places = [
    ['XDG_RUNTIME_DIR', 'onegate.sock'],
    ['XDG_CACHE_HOME', 'onegate/onegate.sock'],
    ['HOME', '.cache/onegate/onegate.sock'],
  ];
  for (const [variable, below] of places) {
    const base = environment[variable];
    if (base?.startsWith('/') && exists(`${base}/${below}`)) return `${base}/${below}`;
  }
  return SYSTEM_SOCKET;
}

/** The bytes of one frame around a payload that is encoded already. */
export function frame(payload) {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(payload.length);
  return Buffer.concat([header, payload]);
}

/** The bytes of one message: a map with string keys in a frame. */
export function encodeMessage(message) {
  return frame(encode(message, { ignoreUndefined: true }));
}

/** Takes bytes in any pieces and gives the payloads of the frames that are complete. */
export class FrameReader {
  maxBytes = DEFAULT_MAX_FRAME_BYTES;
  #pieces = [];
  #held = 0;

  /** Yields payloads lazily: `maxBytes` may change between two of them. Throws Gone. */
  *push(bytes) {
    this.#pieces.push(bytes);
    this.#held += bytes.length;
    for (;;) {
      if (this.#held < HEADER_BYTES) return;
      if (this.#pieces[0].length < HEADER_BYTES) this.#join();
      const length = this.#pieces[0].readUInt32BE(0);
      if (length === 0) throw new Gone('the daemon sent a frame of length 0');
      if (length > this.maxBytes) throw new Gone(`the daemon sent a frame of ${length} bytes`);
      if (this.#held < HEADER_BYTES + length) return;
      this.#join();
      const payload = this.#pieces[0].subarray(HEADER_BYTES, HEADER_BYTES + length);
      this.#pieces[0] = this.#pieces[0].subarray(HEADER_BYTES + length);
      this.#held -= HEADER_BYTES + length;
      yield payload;
    }
  }

  #join() {
    if (this.#pieces.length > 1) this.#pieces = [Buffer.concat(this.#pieces)];
  }
}

/** The message in a payload. Throws Gone if it is none. */
export function decodeMessage(payload) {
  let message;
  try {
    message = decode(payload);
  } catch (error) {
    throw new Gone('the daemon sent what is no MessagePack', error);
  }
  if (message === null || typeof message !== 'object' || typeof message.t !== 'string') {
    throw new Gone('the daemon sent what is no message');
  }
  return message;
}

/**
 * A connected socket. Both halves stay open until one of us closes, and a write into a connection
 * that the daemon has closed does not throw away what can still be read: its `failed` may be there.
 * With `onBytes` there are no data events, and a paused socket takes nothing from the kernel.
 */
export async function openSocket(path, { connect = connectOnce, sleep = pause, onBytes } = {}) {
  for (let wait_ms = 10; ; wait_ms = Math.min(2 * wait_ms, 1000)) {
    try {
      return keepReading(await connect(path, onBytes));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      await sleep(wait_ms * (0.5 + Math.random()));
    }
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function connectOnce(path, onBytes) {
  const onread = onBytes && {
    buffer: Buffer.alloc(65536),
    callback: (length, buffer) => {
      onBytes(Buffer.from(buffer.subarray(0, length))); // the next read overwrites it
      return true;
    },
  };
  return new Promise((resolve, reject) => {
    const socket = net.connect({ path, allowHalfOpen: true, onread });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}

function keepReading(socket) {
  // Node destroys a socket whose write failed, with all that it has not read yet. The end of file
  // that a failed write foretells is read soon enough, behind whatever was said before it.
  for (const name of ['_write', '_writev']) {
    const write = socket[name];
    if (typeof write !== 'function') continue;
    socket[name] = (...args) => {
      const written = args.pop();
      write.call(socket, ...args, (error) => {
        const closed = error?.code === 'EPIPE' || error?.code === 'ECONNRESET';
        if (closed) socket.emit('unwritable', error);
        written(closed ? null : error);
      });
    };
  }
  return socket;
}

/** One request: the messages that answer it, in order, and its end. */
export class Request {
  #waiting = [];
  #messages = [];
  #finish;

  constructor(id) {
    this.id = id;
    // `end` fulfils with the last message and rejects with Failed or Gone.
    this.end = new Promise((resolve, reject) => (this.#finish = { resolve, reject }));
    this.end.catch(() => {});
  }

  /** Called by the connection: one message of this id. */
  deliver(message) {
    this.#messages.push(message);
    this.#wake();
  }

  /** Called by the connection: nothing follows. */
  finish(error, last) {
    this.error = error;
    this.finished = true;
    if (error) this.#finish.reject(error);
    else this.#finish.resolve(last);
    this.#wake();
  }

  #wake() {
    for (const resume of this.#waiting.splice(0)) resume();
  }

  /** Every message up to the last; throws Failed or Gone where the request did not finish. */
  async *[Symbol.asyncIterator]() {
    for (let at = 0; ; at++) {
      while (at === this.#messages.length) {
        if (this.finished) {
          if (this.error) throw this.error;
          return;
        }
        await new Promise((resume) => this.#waiting.push(resume));
      }
      yield this.#messages[at];
    }
  }

  /** The first message with this tag, or Failed or Gone if the end comes before. */
  async first(tag) {
    for await (const message of this) if (message.t === tag) return message;
    throw new Gone(`the request ended without ${tag}`);
  }

  /** The whole answer of a `generate`: text per kind, tool calls, all messages, `done`. */
  async answer() {
    const whole = { text: '', thinking: '', toolCalls: [], messages: [] };
    for await (const message of this) {
      whole.messages.push(message);
      if (message.t !== 'chunk') continue;
      const kind = message.kind ?? 'text';
      if (kind === 'text' || kind === 'thinking') whole[kind] += message.text ?? '';
      if (kind === 'tool_call' && message.tool_call) whole.toolCalls.push(message.tool_call);
    }
    whole.done = await this.end;
    return whole;
  }
}

const PROGRESS = new Set(['queued', 'started', 'chunk', 'paused', 'resumed']);
const ENDS = new Set([
  'done',
  'embeddings',
  'counted',
  'capacity_report',
  'status_report',
  'whoami_report',
  'metrics_report',
  'usage_report',
]);

/** One connection, many requests. `stream` is a connected duplex stream of bytes. */
export class Connection {
  #stream;
  #frames = new FrameReader();
  #live = new Map();
  #cancels = new Map();
  #nextId = 1;
  #greet;
  #observe;
  #over = null;

  constructor(stream, hello = {}, observe = () => {}) {
    this.#stream = stream;
    this.#observe = observe;
    this.ready = new Promise((resolve, reject) => (this.#greet = { resolve, reject }));
    this.ready.catch(() => {});
    this.closed = new Promise((resolve) => stream.once('close', resolve));
    stream.on('data', (bytes) => this.#read(bytes));
    stream.on('end', () => this.#end(new Gone('the daemon closed the connection')));
    stream.on('error', (error) => this.#end(new Gone('the connection broke', error)));
    stream.on('close', () => this.#end(new Gone('the connection was closed')));
    this.#write({ t: 'hello', features: ['v1'], ...hello });
  }

  /** Connects, says hello and waits for the welcome. Throws Failed, Gone or the error of connect. */
  static async open(path = socketPath(), hello = {}, observe = undefined) {
    const connection = new Connection(await openSocket(path), hello, observe);
    await connection.ready;
    return connection;
  }

  /** Sends one request, any verb but `cancel`, under the next id. */
  start(verb, fields = {}) {
    const request = new Request(this.#freeId());
    if (this.#over) {
      request.finish(this.#over);
      return request;
    }
    this.#live.set(request.id, request);
    this.#write({ t: verb, id: request.id, ...fields });
    return request;
  }

  /** Sends one request and waits for its end. Throws Failed or Gone. */
  ask(verb, fields = {}) {
    return this.start(verb, fields).end;
  }

  generate(fields) {
    return this.start('generate', fields);
  }

  /** Cancels by id; fulfils with whether there was something to cancel. */
  cancel(id) {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(this.#over);
      const waiting = this.#cancels.get(id) ?? [];
      waiting.push({ resolve, reject });
      this.#cancels.set(id, waiting);
      this.#write({ t: 'cancel', id });
    });
  }

  close() {
    this.#end(new Gone('closed by this client'));
  }

  #freeId() {
    while (this.#live.has(this.#nextId)) this.#nextId = (this.#nextId + 1) >>> 0;
    const id = this.#nextId;
    this.#nextId = (id + 1) >>> 0;
    return id;
  }

  #write(message) {
    this.#stream.write(encodeMessage(message));
  }

  #read(bytes) {
    try {
      for (const payload of this.#frames.push(bytes)) {
        if (this.#over) return;
        const message = decodeMessage(payload);
        this.#observe(message);
        this.#take(message);
      }
    } catch (error) {
      this.#end(error);
    }
  }

  #take(message) {
    const { t, id } = message;
    if (t === 'welcome') {
      this.welcome = message;
      this.#frames.maxBytes = message.limits.max_frame_bytes;
      this.#greet.resolve(message);
    } else if (t === 'failed') {
      if (id === undefined || id === null) this.#end(new Failed(message));
      else this.#finish(id, new Failed(message), message);
    } else if (t === 'ack') {
      this.#acknowledge(message);
    } else if (PROGRESS.has(t)) {
      this.#live.get(id)?.deliver(message);
    } else if (ENDS.has(t)) {
      this.#finish(id, null, message);
    }
  }

  #acknowledge(message) {
    const { id, verb, applied = true } = message;
    if (verb === 'cancel') {
      const waiting = this.#cancels.get(id) ?? [];
      waiting.shift()?.resolve(applied);
      if (waiting.length === 0) this.#cancels.delete(id);
    } else if (verb !== 'settle' || applied) {
      this.#finish(id, null, message);
    }
  }

  #finish(id, error, last) {
    const request = this.#live.get(id);
    if (!request) return;
    this.#live.delete(id);
    request.deliver(last);
    request.finish(error, last);
  }

  #end(error) {
    if (this.#over) return;
    this.#over = error;
    this.#greet.reject(error);
    for (const request of this.#live.values()) request.finish(error);
    for (const waiting of this.#cancels.values()) for (const one of waiting) one.reject(error);
    this.#live.clear();
    this.#cancels.clear();
    this.#stream.destroy();
  }
}

/**
 * `generate` until it is answered: after a refusal that says `retryable`, waits as long as it asks
 * for, or longer each time, and repeats with its ticket. Throws the last Failed after `tries`.
 */
export async function generatePatiently(connection, fields, { tries = 5, sleep = pause } = {}) {
  let ticket;
  for (let attempt = 1; ; attempt++) {
    try {
      return await connection.generate({ ...fields, ticket }).answer();
    } catch (error) {
      if (!(error instanceof Failed) || !error.answer.retryable || attempt === tries) throw error;
      if ((error.answer.id ?? null) === null) throw error;
      ticket = error.answer.ticket ?? undefined;
      const unknown_ms = Math.min(1000 * 2 ** (attempt - 1), 60000) * (0.5 + Math.random());
      await sleep(error.answer.retry_after_ms ?? unknown_ms);
    }
  }
}
