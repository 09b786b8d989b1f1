#!/usr/bin/env node
// Runs the steps of a plan that are marked `inspect` with the command line of the MCP Inspector, which
// starts the server anew for each; see plan.py. With `--kill-during` it is the Inspector's own load test
// that must not see a single error while the server is killed.

import { spawn, spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

import { answerOf, check, expect, main, same, slayOnce } from './plan.mjs';

// Calls of the load test, and after how many answers each the server is killed: whatever the speed of the
// machine, a server has served before it is killed, and is served by a successor afterwards.
const LOAD_REQUESTS = 400;
const KILL_EVERY = 100;
const KILLS = 3;
const LOOK_MS = 50;
const PACKAGE = createRequire(import.meta.url).resolve('@modelcontextprotocol/inspector/package.json');
const PROGRAM = path.join(path.dirname(PACKAGE), 'clients/cli/build/index.js');

/** Runs the Inspector once; gives its exit code and its output. */
async function inspect({ mode, command }, method, ...words) {
    const how = ['--format', 'json', '-q', '--connect-timeout', '0', '--protocol-era', mode, '--method', method];
    // The Inspector passes few variables on; without this one nobody finds the host.
    const { MAINSTAY_RUNTIME_DIR: runtime } = process.env;
    if (runtime !== undefined) how.push('-e', `MAINSTAY_RUNTIME_DIR=${runtime}`);
    const args = [PROGRAM, ...how, ...words, '--', ...command];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = { out: '', err: '' };
    child.stdout.on('data', chunk => (said.out += chunk));
    child.stderr.on('data', chunk => (said.err += chunk));
    const code = await new Promise((resolve, reject) => {
        child.on('error', reject);
        child.on('close', resolve);
    });
    return { code, ...said };
}

function resultOf({ code, out, err }) {
    try {
        return JSON.parse(out).result;
    } catch {
        throw new Error(`the Inspector ended with ${code}: ${out} ${err}`);
    }
}

async function takeStep(options, step) {
    if ('call' in step) {
        const words = ['--tool-name', step.call, '--tool-args-json', JSON.stringify(step.arguments ?? {})];
        check(step, answerOf(resultOf(await inspect(options, 'tools/call', ...words))));
    } else if ('prompt' in step) {
        const pairs = Object.entries(step.arguments ?? {}).map(([key, value]) => `${key}=${value}`);
        const words = ['--prompt-name', step.prompt, ...(pairs.length > 0 ? ['--prompt-args', ...pairs] : [])];
        const result = resultOf(await inspect(options, 'prompts/get', ...words));
        expect(JSON.stringify(result).includes(step.contains), `the prompt ${step.prompt}`, result);
    } else if ('read' in step) {
        const result = resultOf(await inspect(options, 'resources/read', '--uri', step.read));
        expect(JSON.stringify(result).includes(step.contains), `the resource ${step.read}`, result);
    } else {
        throw new Error(`the Inspector cannot take this step: ${JSON.stringify(step)}`);
    }
}

async function exercise(options) {
    const { plan } = options;
    const { tools } = resultOf(await inspect(options, 'tools/list'));
    // It declares fewer capabilities than others, so a server may have fewer tools for it.
    const names = tools.map(tool => tool.name);
    const shared = plan.tools.filter(name => names.includes(name));
    expect(names.length > 0 && same(names.filter(name => plan.tools.includes(name)), shared), 'the tools', names);
    // Each is a start of the Inspector, which takes seconds; the modes differ only in how it connects.
    const marked = plan.steps.filter(step => step.inspect);
    const steps = options.mode === 'auto' ? marked.slice(0, 1) : marked;
    for (const step of steps) await takeStep(options, step);
    return { steps: steps.length, tools: names.length };
}

/** Requests that the host has answered well so far. */
function answered({ command: [mainstay] }) {
    const { stdout } = spawnSync(mainstay, ['status', '--json'], { encoding: 'utf8' });
    try {
        return JSON.parse(stdout)[0]?.totals?.success_count ?? 0;
    } catch {
        return 0;
    }
}

async function survive(options) {
    const step = options.plan.kill.again[0];
    const words = ['--tool-name', step.call, '--tool-args-json', JSON.stringify(step.arguments ?? {})];
    const load = ['--load', '--load-requests', String(LOAD_REQUESTS), '--load-concurrency', '4', '--load-rate', '100'];
    let isOver = false;
    const running = inspect(options, 'tools/call', ...words, ...load).finally(() => (isOver = true));
    running.catch(() => {});
    let kills = 0;
    while (!isOver && kills < KILLS) {
        if (answered(options) >= (kills + 1) * KILL_EVERY && slayOnce(options.victim) > 0) kills += 1;
        await sleep(LOOK_MS);
    }
    const { code, out, err } = await running;
    expect(code === 0, 'a load test that ends well', { code, out, err });
    const { requests, ok } = resultOf({ code, out, err });
    expect(kills === KILLS && requests === LOAD_REQUESTS && requests === ok, 'calls that all succeed', { kills, out });
    return { kills, requests };
}

await main(options => (options.victim === undefined ? exercise(options) : survive(options)));
