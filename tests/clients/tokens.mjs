// The tokens of a `tools/list` result, of each tool and of all: node tokens.mjs RESULT.json
import { readFileSync } from 'node:fs';
import { encode } from 'gpt-tokenizer/encoding/o200k_base';

const tokens = (value) => encode(JSON.stringify(value)).length;
const list = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const tools = Object.fromEntries(list.tools.map((tool) => [tool.name, tokens(tool)]));
console.log(JSON.stringify({ all: tokens(list), tools }));
