#!/usr/bin/env node
// Drives an MCP server over stdio with the npm `@modelcontextprotocol/client`.
//
// usage: typescript_client.mjs auto|legacy [--root DIR] [--call NAME JSON]... -- COMMAND [ARG]...
//
// `auto` probes the stateless revision first (on a sibling process of its own),
// `legacy` forces `initialize`. With `--root` it has that root. Prints one JSON line per step; any failure goes
// to stderr and exits 1.

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

/** Returns {mode, root, calls: [{name, arguments}], command}. */
function parse(argv) {
    const split = argv.indexOf('--');
    if (split < 0) throw new Error('missing -- and the server command');
    const [mode, ...rest] = argv.slice(0, split);
    const command = argv.slice(split + 1);
    if (mode !== 'auto' && mode !== 'legacy') throw new Error('the first argument must be auto or legacy');
    if (command.length === 0) throw new Error('empty server command');
    const root = rest[0] === '--root' ? rest.splice(0, 2)[1] : null;
    const calls = [];
    while (rest.length > 0) {
        const [option, name, json] = rest.splice(0, 3);
        if (option !== '--call' || json === undefined) throw new Error(`expected --call NAME JSON, got ${option}`);
        calls.push({ name, arguments: JSON.parse(json) });
    }
    return { mode, root, calls, command };
}

function emit(value) {
    console.log(JSON.stringify(value));
}

async function drive({ mode, root, calls, command }) {
    const capabilities = root ? { roots: {} } : {};
    const options = { versionNegotiation: { mode }, capabilities };
    const client = new Client({ name: 'typescript_client', version: '1.0.0' }, options);
    if (root) client.setRequestHandler('roots/list', () => ({ roots: [{ uri: `file://${root}` }] }));
    const [program, ...args] = command;
    await client.connect(new StdioClientTransport({ command: program, args, env: process.env }));
    try {
        // Without a cursor the client walks all pages itself, and only then
        // validates structured output against the listed schemas.
        const { tools } = await client.listTools();
        emit({ tools: tools.map(tool => tool.name).sort(), protocol: client.getNegotiatedProtocolVersion() });
        for (const call of calls) {
            const result = await client.callTool(call);
            emit({
                call: call.name,
                isError: result.isError ?? false,
                structured: result.structuredContent ?? null,
                text: result.content.find(block => block.type === 'text')?.text ?? null
            });
        }
        const offered = client.getServerCapabilities();
        if (offered.resources) {
            const { resources } = await client.listResources();
            emit({ resources: resources.map(resource => resource.uri).sort() });
        }
        if (offered.prompts) {
            const { prompts } = await client.listPrompts();
            emit({ prompts: prompts.map(prompt => prompt.name).sort() });
        }
    } finally {
        await client.close();
    }
}

try {
    await drive(parse(process.argv.slice(2)));
} catch (error) {
    console.error(`${error.name}: ${error.message}`);
    process.exitCode = 1;
}
