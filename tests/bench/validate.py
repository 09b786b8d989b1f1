"""Times Python's jsonschema for `cargo xtask bench validate`: python validate.py JOB

The job and the answer are described in crates/testkit/src/bench/validate/others.rs.
"""

import json
import sys
from time import perf_counter_ns

from jsonschema.validators import validator_for
from referencing import Registry, Resource


def compiled(documents):
    """A validator of every listed document. Each is checked by its meta-schema."""
    resources = [(d["uri"], Resource.from_contents(d["schema"])) for d in documents]
    registry = Registry().with_resources(resources).crawl()
    validators = {}
    for document in documents:
        if document["listed"]:
            schema = document["schema"]
            kind = validator_for(schema)
            kind.check_schema(schema)
            validators[document["uri"]] = kind(schema, registry=registry)
    return validators


def timed(work, limits, share):
    """Runs it until time or number is up; nanoseconds of each run, divided by the share."""
    samples = []
    until = perf_counter_ns() + limits["seconds"] * 1e9
    while len(samples) < 3 or (len(samples) < limits["passes"] and perf_counter_ns() < until):
        start = perf_counter_ns()
        work()
        samples.append((perf_counter_ns() - start) // share)
    return samples


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    documents = job["documents"]
    answer = {"compile": timed(lambda: compiled(documents), job["compile"], 1), "cases": []}
    validators = compiled(documents)
    for case in job["cases"]:
        validator, assets = validators[case["schema"]], case["assets"]
        errors = 0

        def work():
            nonlocal errors
            errors = sum(len(list(validator.iter_errors(asset))) for asset in assets)

        timed(work, job["warm_up"], len(assets))
        samples = timed(work, job["measure"], len(assets))
        answer["cases"].append({"errors": errors, "samples": samples})
    json.dump(answer, sys.stdout)


main()
