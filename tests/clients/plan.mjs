// Runs a plan of tests/servers/plans against an MCP server, through any JavaScript client. The usage
// and the meaning of everything stand in plan.py, which this mirrors.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

export const STEP_MS = 120_000;
export const SAMPLED = 'sampled by the client';
export const ROOT_NAME = 'folder';
const ROUNDS = 5;
const KILL_WITHIN_MS = 120;

export function parse(argv) {
    const split = argv.indexOf('--');
    const [mode, file, ...rest] = split < 0 ? [] : argv.slice(0, split);
    const command = argv.slice(split + 1);
    if (!['auto', 'legacy'].includes(mode) || file === undefined || command.length === 0) {
        throw new Error('expected auto|legacy PLAN [OPTION]... -- COMMAND');
    }
    const options = { mode, folder: process.cwd(), victim: undefined, command };
    let kills = false;
    while (rest.length > 0) {
        const option = rest.shift();
        if (option === '--kill-during') kills = true;
        else if (['--folder', '--victim'].includes(option) && rest.length > 0) options[option.slice(2)] = rest.shift();
        else throw new Error(`no option ${option}`);
    }
    if (kills !== (options.victim !== undefined)) throw new Error('--kill-during and --victim go together');
    options.plan = filled(JSON.parse(fs.readFileSync(file, 'utf8')), { folder: options.folder });
    return options;
}

/** The value with {name} replaced in every string. */
export function filled(value, names) {
    if (typeof value === 'string') {
        return Object.entries(names).reduce((text, [name, with_]) => text.replaceAll(`{${name}}`, String(with_)), value);
    }
    if (Array.isArray(value)) return value.map(item => filled(item, names));
    if (value !== null && typeof value === 'object') {
        return Object.fromEntries(Object.entries(value).map(([key, item]) => [filled(key, names), filled(item, names)]));
    }
    return value;
}

export function expect(condition, what, found) {
    if (!condition) throw new Error(`mismatch: ${what}; found ${JSON.stringify(found) ?? found}`);
}

export function same(found, wanted) {
    try {
        assert.deepStrictEqual(found, wanted);
        return true;
    } catch {
        return false;
    }
}

/** An answer of a tool as plans speak of it. */
export function answerOf(result, progress = 0) {
    return {
        text: result.content?.find(block => block.type === 'text')?.text ?? '',
        structured: result.structuredContent ?? null,
        isError: result.isError ?? false,
        progress
    };
}

export function check(step, answer) {
    const name = step.call;
    expect(answer.isError === (step.isError ?? false), `${name}: isError`, answer);
    if ('text' in step) expect(answer.text === step.text, `${name}: the text ${JSON.stringify(step.text)}`, answer);
    if ('contains' in step) expect(answer.text.includes(step.contains), `${name}: a text with ${step.contains}`, answer);
    if ('structured' in step) expect(same(answer.structured, step.structured), `${name}: ${JSON.stringify(step.structured)}`, answer);
    // A client may drop the last step when the answer comes right behind it; this one does.
    const missed = 'progress' in step ? step.progress - answer.progress : 0;
    expect(missed === 0 || missed === 1, `${name}: ${step.progress} steps`, answer);
}

/** Takes one step of a plan. */
export async function take(session, step) {
    if ('call' in step) {
        check(step, await session.call(step.call, step.arguments ?? {}, 'progress' in step));
    } else if ('prompts' in step) {
        const names = await session.prompts();
        expect(same(names, step.prompts), 'the prompts', names);
    } else if ('prompt' in step) {
        const text = await session.prompt(step.prompt, step.arguments ?? {});
        expect(text.includes(step.contains), `the prompt ${step.prompt}`, text);
    } else if ('resources' in step) {
        const uris = await session.resources();
        expect(step.resources.every(uri => uris.includes(uri)), 'the resources', uris);
    } else if ('templates' in step) {
        const uris = await session.templates();
        expect(same(uris, step.templates), 'the templates', uris);
    } else if ('read' in step) {
        const text = await session.read(step.read);
        expect(text.includes(step.contains), `the resource ${step.read}`, text);
    } else if ('complete' in step) {
        const { prompt, name, value } = step.complete;
        const values = await session.complete(prompt, name, value);
        expect(same(values, step.values), `completion of ${name}`, values);
    } else {
        throw new Error(`no such step: ${JSON.stringify(step)}`);
    }
}

/** Every step, in order. */
export async function exercise(session, { mode, plan }) {
    expect(session.protocol === plan.protocol[mode], 'the protocol', session.protocol);
    let tools;
    for (let turn = 0; turn < 2000; turn += 1) {
        // Some servers add tools when they have seen the client's capabilities.
        tools = (await session.tools()).filter(name => !(plan.maybe ?? []).includes(name));
        if (same(tools, plan.tools)) break;
        await sleep(50);
    }
    expect(same(tools, plan.tools), 'the tools', tools);
    for (const step of plan.steps) await take(session, step);
    return { protocol: session.protocol, steps: plan.steps.length };
}

/** Rounds of calls while the server is killed. */
export async function survive(session, { plan, victim }) {
    const { again, once, witness } = plan.kill;
    const counts = { kills: 0, again: 0, once: 0, lost: 0 };
    const fates = new Map();
    const before = await session.tools();
    for (const step of again) await take(session, step);
    for (let number = 0; number < ROUNDS; number += 1) {
        const calls = [...again, ...again].map(step => take(session, step));
        const lost = once === undefined ? undefined : attempt(session, filled(once, { n: number }));
        // Whoever fails first is reported when it is waited for.
        for (const call of [...calls, lost]) call?.catch(() => {});
        await sleep(Math.random() * KILL_WITHIN_MS);
        counts.kills += await slay(victim);
        for (const call of calls) {
            await call;
            counts.again += 1;
        }
        if (lost !== undefined) {
            fates.set(number, await lost);
            counts[fates.get(number) ? 'once' : 'lost'] += 1;
        }
        for (const step of again) await take(session, step);
    }
    expect(counts.kills >= ROUNDS, `${ROUNDS} kills`, counts);
    const after = await session.tools();
    expect(same([...after].sort(), [...before].sort()), 'the same tools as before', after);
    if (witness !== undefined) testify(witness, fates);
    return { protocol: session.protocol, ...counts };
}

/** A call that must not be repeated: true if it succeeded, false after a typed error. */
async function attempt(session, step) {
    let answer;
    try {
        answer = await session.call(step.call, step.arguments ?? {}, false);
    } catch (error) {
        expect(session.isTyped(error), 'a typed error', String(error));
        return false;
    }
    if (!answer.isError) {
        check(step, answer);
        return true;
    }
    let payload;
    try {
        payload = JSON.parse(answer.text);
    } catch {
        // Not typed.
    }
    expect(payload?.code !== undefined, 'a typed error', answer);
    return false;
}

/** No call was executed twice, and each that succeeded was executed. */
function testify(witness, fates) {
    const text = fs.existsSync(witness.file) ? fs.readFileSync(witness.file, 'utf8') : '';
    for (const [number, succeeded] of fates) {
        const count = text.split(filled(witness.each, { n: number })).length - 1;
        expect(count <= 1, `call ${number} executed at most once`, count);
        expect(count === 1 || !succeeded, `call ${number} executed`, count);
    }
}

/** Kills the victims with -9, as soon as there are any; says how many there were. */
async function slay(text) {
    const until = Date.now() + 120_000;
    for (;;) {
        const killed = slayOnce(text);
        if (killed > 0) return killed;
        if (Date.now() > until) throw new Error(`nobody below this process has ${text} in its command line`);
        await sleep(5);
    }
}

/** Kills the victims that are there now with -9; says how many there were. */
export function slayOnce(text) {
    let killed = 0;
    for (const pid of findVictims(text)) {
        try {
            process.kill(pid, 'SIGKILL');
            killed += 1;
        } catch (error) {
            if (error.code !== 'ESRCH') throw error;
        }
    }
    return killed;
}

function findVictims(text) {
    const parents = new Map();
    const lines = new Map();
    for (const entry of fs.readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
        try {
            const stat = fs.readFileSync(`/proc/${entry}/stat`, 'utf8');
            parents.set(Number(entry), Number(stat.slice(stat.lastIndexOf(')')).split(' ')[2]));
            lines.set(Number(entry), fs.readFileSync(`/proc/${entry}/cmdline`, 'utf8'));
        } catch {
            // It has just gone.
        }
    }
    const ancestors = pid => {
        const found = [];
        for (let above = parents.get(pid); above !== undefined; above = parents.get(above)) found.push(above);
        return found;
    };
    const isNamed = line => {
        const words = line.split('\0');
        const dashes = words.indexOf('--');
        return words.slice(0, dashes < 0 ? undefined : dashes).some(word => word.includes(text));
    };
    const matching = [...lines].filter(([pid, line]) => isNamed(line) && ancestors(pid).includes(process.pid));
    const inner = new Set(matching.flatMap(([pid]) => ancestors(pid)));
    // A child that was forked a moment ago still has the command line of its parent.
    const itself = pid => {
        while (lines.get(parents.get(pid)) === lines.get(pid)) pid = parents.get(pid);
        return pid;
    };
    return [...new Set(matching.map(([pid]) => pid).filter(pid => !inner.has(pid)).map(itself))];
}

/** Runs `work(options)` and prints what it gives; any failure goes to stderr and exits 1. */
export async function main(work) {
    try {
        console.log(JSON.stringify(await work(parse(process.argv.slice(2)))));
    } catch (error) {
        console.error(`${error.name}: ${error.message}`);
        process.exitCode = 1;
    }
}
