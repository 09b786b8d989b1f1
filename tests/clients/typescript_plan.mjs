#!/usr/bin/env node
// Runs a plan with the npm `@modelcontextprotocol/client`; see plan.py.

import process from 'node:process';

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { ROOT_NAME, SAMPLED, STEP_MS, answerOf, exercise, main, survive } from './plan.mjs';

class Session {
    constructor(client) {
        this.client = client;
        this.protocol = client.getNegotiatedProtocolVersion();
    }

    isTyped(error) {
        // What a peer says has a number; what the client says about a lost connection has a word.
        return typeof error.code === 'number' && error.code !== -32000;
    }

    async tools() {
        return (await this.client.listTools()).tools.map(tool => tool.name);
    }

    async call(name, args, withProgress) {
        let steps = 0;
        const options = { timeout: STEP_MS };
        if (withProgress) options.onprogress = () => void (steps += 1);
        const result = await this.client.callTool({ name, arguments: args }, options);
        return answerOf(result, steps);
    }

    async prompts() {
        return (await this.client.listPrompts()).prompts.map(prompt => prompt.name);
    }

    async prompt(name, args) {
        const { messages } = await this.client.getPrompt({ name, arguments: args });
        return messages.map(message => message.content.text ?? '').join('\n');
    }

    async resources() {
        return (await this.client.listResources()).resources.map(resource => resource.uri);
    }

    async templates() {
        const { resourceTemplates } = await this.client.listResourceTemplates();
        return resourceTemplates.map(template => template.uriTemplate);
    }

    async read(uri) {
        const { contents } = await this.client.readResource({ uri });
        return contents.map(content => content.text ?? '').join('\n');
    }

    async complete(prompt, name, value) {
        const ref = { type: 'ref/prompt', name: prompt };
        return (await this.client.complete({ ref, argument: { name, value } })).completion.values;
    }
}

await main(async options => {
    const { mode, folder, command, victim } = options;
    const capabilities = { roots: {}, sampling: {}, elicitation: {} };
    const client = new Client({ name: 'typescript_plan', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
    client.setRequestHandler('roots/list', () => ({ roots: [{ uri: `file://${folder}`, name: ROOT_NAME }] }));
    client.setRequestHandler('elicitation/create', () => ({ action: 'decline' }));
    client.setRequestHandler('sampling/createMessage', () => ({
        role: 'assistant',
        content: { type: 'text', text: SAMPLED },
        model: 'none'
    }));
    const [program, ...args] = command;
    await client.connect(new StdioClientTransport({ command: program, args, env: process.env }));
    try {
        const session = new Session(client);
        return await (victim === undefined ? exercise : survive)(session, options);
    } finally {
        await client.close();
    }
});
