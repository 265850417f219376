// The conformance run: every case against the daemon at $ONEGATE_SOCKET, one line each.
//
// ONEGATE_PROTOCOL_PAGE   PROTOCOL.md; default: beside the package of this source tree
// ONEGATE_GOLDEN          the golden frames; default: those of this source tree
// ONEGATE_SMALL_BOUNDS=1  the daemon has the bounds of test_conformance.py: reach them all
// ONEGATE_DAEMON_PID      the daemon's process: the last case ends it with SIGTERM
// ONEGATE_TIMEOUT_FACTOR  for slow machines
// Arguments: parts of names; only cases whose name has one of them are run.

import { fileURLToPath } from 'node:url';
import { Connection, socketPath } from './client.mjs';
import { Context } from './context.mjs';
import { readSpec } from './spec.mjs';
import clientCases from './cases/client.mjs';
import endingCases from './cases/ending.mjs';
import frameCases from './cases/frames.mjs';
import generateCases from './cases/generate.mjs';
import helloCases from './cases/hello.mjs';
import invalidCases from './cases/invalid.mjs';
import pageCases from './cases/page.mjs';
import parameterCases from './cases/parameters.mjs';
import refusalCases from './cases/refusals.mjs';
import replyCases from './cases/replies.mjs';
import verbCases from './cases/verbs.mjs';

const CASES = [
  ...clientCases,
  ...pageCases,
  ...helloCases,
  ...frameCases,
  ...invalidCases,
  ...replyCases,
  ...generateCases,
  ...parameterCases,
  ...endingCases,
  ...verbCases,
  ...refusalCases,
];

const here = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const environment = process.env;
const path = socketPath();
const page = environment.ONEGATE_PROTOCOL_PAGE || here('../../daemon/onegate/protocol/PROTOCOL.md');

/** Who we are to the daemon, once its first model is ready: what the cases' conditions ask. */
async function facts(patience_ms) {
  const until = Date.now() + patience_ms;
  for (;;) {
    const connection = await Connection.open(path);
    try {
      const whoami = await connection.ask('whoami');
      const { status } = await connection.ask('status');
      const small = environment.ONEGATE_SMALL_BOUNDS === '1';
      const found = { whoami, small, mortal: environment.ONEGATE_DAEMON_PID !== undefined };
      if (status.pools[0]?.state === 'ready') return found;
    } finally {
      connection.close();
    }
    if (Date.now() > until) throw new Error('no model became ready');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function runCase(one, context) {
  try {
    await context.within(one.run(context), one.name, 6 * context.patience_ms);
    context.closeAll();
    if (!one.alone && !one.last) await context.idle();
    if (context.deviations.size > 0) {
      throw new Error(`not as in PROTOCOL.md: ${[...context.deviations].slice(0, 5).join('; ')}`);
    }
  } finally {
    context.closeAll();
  }
}

const factor = Number(environment.ONEGATE_TIMEOUT_FACTOR || 1);
const golden = environment.ONEGATE_GOLDEN || here('../wire/golden');
const setting = {
  path,
  page,
  golden,
  factor,
  spec: readSpec(page),
  pid: Number(environment.ONEGATE_DAEMON_PID),
  facts: await facts(30000 * factor),
};
const wanted = process.argv.slice(2);
const counts = { passed: 0, failed: 0, skipped: 0 };
for (const one of CASES) {
  if (wanted.length > 0 && !wanted.some((part) => one.name.includes(part))) continue;
  if (one.needs && !one.needs(setting.facts)) {
    counts.skipped++;
    console.log(`skip ${one.name}`);
    continue;
  }
  try {
    await runCase(one, new Context(setting));
    counts.passed++;
    console.log(`ok   ${one.name}`);
  } catch (error) {
    counts.failed++;
    const reason = error.stack
      .split('\n')
      .slice(0, error.answer ? 1 : 12)
      .join('\n     ');
    console.log(`FAIL ${one.name}\n     ${reason}`);
  }
}
const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : '';
console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
