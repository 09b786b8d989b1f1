// Times ajv for `cargo xtask bench validate`: node validate.mjs JOB NODE_MODULES
//
// The job and the answer are described in crates/testkit/src/bench/validate/others.rs.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [jobFile, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Ajv2020 } = require("ajv/dist/2020.js");
const draft7 = require("ajv/dist/refs/json-schema-draft-07.json");

/// A function for every listed document. Each is checked by its meta-schema. In 2020-12 a format is
/// a note, so none is checked.
function compiled(documents) {
  const ajv = new Ajv2020({ allErrors: true, strict: false, validateFormats: false });
  ajv.addMetaSchema(draft7);
  for (const { uri, schema } of documents) ajv.addSchema(schema, uri);
  const listed = documents.filter((document) => document.listed);
  return new Map(listed.map(({ uri }) => [uri, ajv.getSchema(uri)]));
}

/// Runs it until time or number is up; nanoseconds of each run, divided by the share.
function timed(work, limits, share) {
  const samples = [];
  const until = performance.now() + limits.seconds * 1000;
  while (samples.length < 3 || (samples.length < limits.passes && performance.now() < until)) {
    const start = process.hrtime.bigint();
    work();
    samples.push(Math.round(Number(process.hrtime.bigint() - start) / share));
  }
  return samples;
}

const job = JSON.parse(readFileSync(jobFile, "utf8"));
const answer = { compile: timed(() => compiled(job.documents), job.compile, 1), cases: [] };
const validators = compiled(job.documents);
for (const { schema, assets } of job.cases) {
  const validate = validators.get(schema);
  let errors = 0;
  const work = () => {
    errors = 0;
    for (const asset of assets) {
      if (!validate(asset)) errors += validate.errors.length;
    }
  };
  timed(work, job.warm_up, assets.length);
  const samples = timed(work, job.measure, assets.length);
  answer.cases.push({ errors, samples });
}
process.stdout.write(JSON.stringify(answer));
