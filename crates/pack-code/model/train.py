#!/usr/bin/env python3
"""Trains the vectors of ranked search from the pairs of extract.py.

    train.py encode PAIRS DIR     pairs as arrays of token numbers, and the vocabulary (needs numpy)
    train.py train DIR OUT        trains, and writes OUT/vectors.bin (needs torch; a GPU takes about a minute)

A text is the sum of the vectors of its tokens, each times its weight, made length 1. Token vectors and weights are learned
so that a description is nearer to its own code than to the other code of a batch (InfoNCE in both directions).
"""
import array, math, os, sys, time, zlib

import numpy as np

VOCABULARY, DIMENSIONS = 25_000, 128
EPOCHS, BATCH, RATE = 4, 8192, 0.01
# Pairs of one package that stand together in a batch, so that code of one project is told apart.
TOGETHER = 32
# Shares of tokens that are left out: of the code, of the code where the description has them too, of the description.
DROP_CODE, DROP_SHARED, DROP_SAID = 0.2, 0.3, 0.1
NAMES_KEPT = 0.5
LONGEST_SAID, LONGEST_CODE = 28, 90
# Words that questions have and comments do not, put in front of some descriptions.
ASKING = {"how": 0.10, "where": 0.04, "what": 0.03, "implementation": 0.03, "logic": 0.02, "handling": 0.03, "does": 0.04, "are": 0.03}
MAGIC = b"mstvec01"


def rows(pairs):
    for name in sorted(os.listdir(pairs)):
        if name.startswith("pairs-"):
            for line in open(os.path.join(pairs, name)):
                yield line.rstrip("\n").split("\t")


def encode(pairs, folder):
    said, code = {}, {}
    for number, row in enumerate(rows(pairs)):
        if row[0] == "P":
            continue
        for token in set(row[1].split(" ")):
            said[token] = said.get(token, 0) + 1
        if number % 3 == 0:
            for token in row[2].split(" "):
                token = token.split(":")[0]
                code[token] = code.get(token, 0) + 1
    known = [t for t in said if said[t] >= 4 and code.get(t, 0) >= 3 and not (t.isdigit() and len(t) > 4)]
    known.sort(key=lambda t: (-said[t] - code[t], t))
    vocabulary = sorted(set(known[:VOCABULARY]) | set(ASKING))
    number_of = {token: number for number, token in enumerate(vocabulary)}
    lists = {"said": array.array("H"), "code": array.array("H"), "times": array.array("B")}
    lengths = {"said": array.array("B"), "code": array.array("B")}
    package, packages, kinds = -1, array.array("H"), array.array("B")
    for row in rows(pairs):
        if row[0] == "P":
            package += 1
            continue
        query = [number_of[t] for t in row[1].split(" ") if t in number_of][:LONGEST_SAID]
        bag = []
        for item in row[2].split(" "):
            token, _, times = item.partition(":")
            if token in number_of:
                bag.append((number_of[token], min(int(times or 1), 4)))
        if len(query) < 2 or len(bag) < 5:
            continue
        bag.sort()
        lists["said"].extend(query)
        lists["code"].extend(t for t, _ in bag)
        lists["times"].extend(n for _, n in bag)
        lengths["said"].append(len(query))
        lengths["code"].append(len(bag))
        packages.append(package)
        kinds.append("dnf".index(row[0]))
    os.makedirs(folder, exist_ok=True)
    open(f"{folder}/vocabulary.txt", "w").write("\n".join(vocabulary))
    values = {"said": lists["said"], "code": lists["code"], "times": lists["times"], "said-lengths": lengths["said"],
              "code-lengths": lengths["code"], "packages": packages, "kinds": kinds}
    for name, value in values.items():
        value = np.array(value)
        if name == "code":
            # Numbers ascend within a pair, so differences are small.
            starts = np.concatenate([[0], np.cumsum(np.array(lengths["code"], dtype=np.int64))[:-1]])
            steps = np.diff(value.astype(np.int32), prepend=0)
            steps[starts] = value[starts]
            value = steps.astype(np.uint16)
        data = value.tobytes()
        if value.dtype == np.uint16:
            data = (value & 255).astype(np.uint8).tobytes() + (value >> 8).astype(np.uint8).tobytes()
        open(f"{folder}/{name}", "wb").write(zlib.compress(data, 9))
    print(len(packages), "pairs,", len(vocabulary), "tokens")


def load(folder, name, wide):
    data = np.frombuffer(zlib.decompress(open(f"{folder}/{name}", "rb").read()), dtype=np.uint8)
    if not wide:
        return data.astype(np.int64)
    half = len(data) // 2
    return data[:half].astype(np.int64) + 256 * data[half:].astype(np.int64)


def padded(flat, lengths, width, fill):
    out = np.full((len(lengths), width), fill, dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(len(flat)) - np.repeat(offsets, lengths)
    keep = column < width
    out[row[keep], column[keep]] = flat[keep]
    return out


def train(folder, out):
    import torch
    import torch.nn.functional as F

    device = "cuda" if torch.cuda.is_available() else "cpu"
    vocabulary = open(f"{folder}/vocabulary.txt").read().split("\n")
    size = len(vocabulary)
    said_lengths, code_lengths = load(folder, "said-lengths", False), load(folder, "code-lengths", False)
    steps = load(folder, "code", True)
    starts = np.concatenate([[0], np.cumsum(code_lengths)[:-1]])
    total = np.cumsum(steps)
    code = total - np.repeat(total[starts] - steps[starts], code_lengths)
    packages, kinds = load(folder, "packages", True), load(folder, "kinds", False)
    said = torch.from_numpy(padded(load(folder, "said", True), said_lengths, LONGEST_SAID, size)).to(device)
    bags = torch.from_numpy(padded(code, code_lengths, LONGEST_CODE, size)).to(device)
    times = torch.from_numpy(padded(load(folder, "times", False), code_lengths, LONGEST_CODE, 0)).to(device).to(torch.uint8)
    count = len(packages)
    rarity = [torch.log(count / (torch.bincount(x.flatten().long(), minlength=size + 1)[:size].float() + 1)) for x in (said, bags)]
    print(count, "pairs", size, "tokens on", device, flush=True)

    random = np.random.default_rng(1)
    held = (random.random(packages.max() + 1) < 0.02)[packages]
    check = np.where(held & (kinds != 1))[0]
    random.shuffle(check)
    check = torch.from_numpy(check[:4096].copy()).to(device)
    rest = np.where(~held)[0]
    # Pairs with one description are no counter-examples of each other.
    prints = (said.long() * torch.arange(1, LONGEST_SAID + 1, device=device) * 1_000_003).sum(1)

    torch.manual_seed(3)
    vectors = torch.nn.Parameter(torch.randn(size + 1, DIMENSIONS, device=device) * 0.1)
    weights = [torch.nn.Parameter(torch.cat([torch.log(r.clamp(min=0.3) / 5), torch.zeros(1, device=device)])) for r in rarity]
    scale = torch.nn.Parameter(torch.tensor(math.log(20.0), device=device))
    rates = [RATE, RATE, 0.002]
    optimiser = torch.optim.Adam([{"params": [vectors]}, {"params": weights}, {"params": [scale]}], betas=(0.9, 0.98))
    asking = [(vocabulary.index(word), share) for word, share in ASKING.items()]

    def text(ids, weight):
        dense = torch.zeros(ids.shape[0], size + 1, device=device).scatter_add(1, ids.long(), weight)
        return F.normalize(dense @ vectors, dim=1)

    def of_said(ids, kept=1.0):
        return text(ids, torch.exp(weights[0][ids]) * (ids < size) * kept)

    def of_code(ids, often, kept=1.0):
        return text(ids, torch.exp(weights[1][ids]) * (ids < size) * (1 + 0.5 * torch.log2(often.float().clamp(min=1))) * kept)

    def order():
        keep = rest[(kinds[rest] != 1) | (random.random(len(rest)) < NAMES_KEPT)]
        keep = keep[np.lexsort((random.random(len(keep)), packages[keep]))]
        begins = np.r_[0, np.where(np.diff(packages[keep]))[0] + 1]
        place = np.arange(len(keep)) - np.repeat(begins, np.diff(np.r_[begins, len(keep)]))
        group = np.cumsum(place % TOGETHER == 0) - 1
        return keep[np.argsort(random.permutation(group.max() + 1)[group], kind="stable")]

    step, began, all_steps = 0, time.time(), None
    for epoch in range(EPOCHS):
        pairs = torch.from_numpy(order()).to(device)
        batches = len(pairs) // BATCH
        all_steps = all_steps or batches * EPOCHS
        for at in range(batches):
            share = min(1, step / 100) * 0.5 * (1 + math.cos(math.pi * min(1, step / all_steps)))
            for group, rate in zip(optimiser.param_groups, rates):
                group["lr"] = rate * share + 1e-6
            chosen = pairs[at * BATCH : (at + 1) * BATCH]
            query, bag, often = said[chosen].clone(), bags[chosen], times[chosen]
            kept = (torch.rand(bag.shape, device=device) > DROP_CODE).float()
            shared = torch.zeros(bag.shape, dtype=torch.bool, device=device)
            for column in range(LONGEST_SAID):
                shared |= bag == query[:, column : column + 1]
            kept = kept * (~(shared & (torch.rand(bag.shape, device=device) < DROP_SHARED))).float()
            for column, (token, chance) in enumerate(asking):
                place = query[:, LONGEST_SAID - 1 - column]
                place[(torch.rand(len(chosen), device=device) < chance) & (place == size)] = token
            a = of_said(query, (torch.rand(query.shape, device=device) > DROP_SAID).float())
            b = of_code(bag, often, kept)
            scores = (a.bfloat16() @ b.bfloat16().T).float() * scale.exp().clamp(max=100)
            same = prints[chosen][:, None] == prints[chosen][None, :]
            same.fill_diagonal_(False)
            scores = scores.masked_fill(same, -1e4)
            target = torch.arange(len(chosen), device=device)
            loss = 0.7 * F.cross_entropy(scores, target) + 0.3 * F.cross_entropy(scores.T, target)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            step += 1
        with torch.no_grad():
            scores = of_said(said[check]) @ of_code(bags[check], times[check]).T
            rank = (scores > scores.diag()[:, None]).sum(1).float()
            print(f"epoch {epoch}: loss {loss.item():.3f}, held-out MRR {(1 / (rank + 1)).mean().item():.4f}, {time.time() - began:.0f} s", flush=True)
    with torch.no_grad():
        table = vectors[:size].float().cpu().numpy()
        both = [torch.exp(w[:size]).float().cpu().numpy() for w in weights]
    os.makedirs(out, exist_ok=True)
    write(f"{out}/vectors.bin", vocabulary, table, *both)


def write(path, vocabulary, table, said, code):
    """Rows as 4-bit numbers of a direction; their length goes into the weights, which are logarithms in steps of 1/16."""
    length = np.linalg.norm(table, axis=1)
    whole = np.clip(np.round(table / np.abs(table).max(axis=1, keepdims=True) * 7), -7, 7).astype(np.int8) + 8
    nibbles = (whole[:, 0::2] | whole[:, 1::2] << 4).astype(np.uint8)
    log = lambda x: np.clip(np.round(np.log2(x * length) * 16) + 128, 0, 255).astype(np.uint8)
    names = "\n".join(vocabulary).encode()
    with open(path, "wb") as out:
        out.write(MAGIC + len(vocabulary).to_bytes(4, "little") + DIMENSIONS.to_bytes(4, "little") + len(names).to_bytes(4, "little"))
        out.write(names + log(said).tobytes() + log(code).tobytes() + nibbles.tobytes())
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    {"encode": encode, "train": train}[sys.argv[1]](sys.argv[2], sys.argv[3])
