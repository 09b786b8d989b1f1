#!/usr/bin/env python3
"""Makes pairs of a description and the code it describes from downloaded packages.

    extract.py DIR OUT SHARD SHARDS    reads DIR as inputs.py fetch left it, writes OUT/pairs-SHARD.tsv and OUT/inventory-SHARD.tsv

A pair is: kind, tokens of the description, tokens of the code with their counts. Kinds: d, a comment and the definition
below it; n, a definition's name and its body; f, a file's first comment and its definitions.
"""
import io, json, os, re, sys, tarfile, zipfile, zlib

from inputs import BENCHMARK, permissive

TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
SLASH = {"//", "/*"}
STYLES = {
    **dict.fromkeys("rs js mjs ts tsx jsx go java kt kts scala c h cc cpp hpp cxx cs swift php zig groovy dart vala nim".split(), "slash"),
    **dict.fromkeys("rb sh bash bats ex exs pl pm".split(), "hash"),
    **dict.fromkeys("hs lua".split(), "dash"), "py": "python",
}
SKIP = re.compile(
    r"(^|/)(_?vendor|vendored|third_?party|node_modules|umd|esm5?|cjs|locales?|migrations|testdata|fixtures|tests?)(/|$)"
    r"|\.min\.|\.bundle\.|_pb2|\.pb\.go|bindings?\.rs$", re.I)
NOT_PROSE = re.compile(
    r"copyright|licen[sc]e|spdx|all rights reserved|eslint|noinspection|istanbul|prettier|generated|do not edit|noqa|type: ignore|"
    r"clippy|pragma|TODO|FIXME|rubocop|phpcs|@inheritdoc|\{\{|====|----|\*\*\*\*", re.I)
TAG = re.compile(r"\s*(@|:param|:return|:type|:raises|Args:|Arguments:|Returns?:|Parameters|Raises:|Example|Usage|>>>|```|\\param|\\return|# )")
DEFINES = re.compile(
    r"\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override|virtual|inline|const|unsafe|pub(?:\([^)]*\))?"
    r"|open|suspend|data|sealed|local|declare|partial|mutating|@\w+)\s+)*"
    r"(?:fn|func|fun|function|def|defp|defmacro|defmodule|class|struct|enum|trait|interface|type|module|object|protocol|extension|namespace|newtype|data)\s+"
    r"(?:\([^)]*\)\s*)?(?P<a>[A-Za-z_]\w*)"
    r"|[A-Za-z_][\w:<>,*&\s\[\]~.?]*?\b(?P<b>[A-Za-z_]\w*)\s*\([^;]*$|(?P<c>[a-z]\w*)\s*::|(?P<d>[a-z_]\w*)\s*\(\)\s*\{")
CONTROL = {"if", "for", "while", "switch", "return", "catch", "match", "else", "with", "using", "new", "case", "when", "unless", "assert"}
PAIRS_PER_PACKAGE, PAIRS_PER_FILE, BYTES_PER_PACKAGE = 2500, 250, 8_000_000
FILE_BYTES, BLOCK_LINES = 400_000, 40


def tokens(text):
    return [token.lower() for token in TOKEN.findall(text) if 1 < len(token) <= 24]


def prose(lines):
    """The first sentences of a comment, or nothing if it is not prose."""
    out = []
    for line in lines:
        if not line.strip() or TAG.match(line):
            if out:
                break
            continue
        out.append(line.strip())
        if len(out) == 5:
            break
    text = re.sub(r"<[^>]{1,40}>|\{@\w+\s+|https?://\S+", " ", " ".join(out))
    sentence = re.match(r"(.{40,}?[.!?])\s+(?=[A-Z])", text)
    text = sentence.group(1) if sentence else text
    signs = sum(c in "{}();=<>[]|&$#" for c in text)
    if len(text) < 12 or signs > 0.08 * len(text) or NOT_PROSE.search(text):
        return None
    return text


def name_of(line):
    found = DEFINES.match(line)
    name = found and (found["a"] or found["b"] or found["c"] or found["d"])
    return name if name and name not in CONTROL else None


def indent(line):
    return len(line) - len(line.lstrip())


def block(lines, at):
    """The lines of the definition that begins at a line."""
    own, out = indent(lines[at]), [lines[at]]
    for line in lines[at + 1 : at + BLOCK_LINES]:
        text = line.strip()
        if text and indent(line) <= own and not text.startswith(("}", ")", "{", "end", "where", "->")) and len(out) > 1:
            break
        out.append(line)
        if text.startswith(("}", "end")) and indent(line) <= own:
            break
    return out


def comment(lines, at, style):
    """The comment that begins at a line: its text, and the line behind it."""
    first = lines[at].strip()
    if style == "slash" and first.startswith("/*") or style == "dash" and first.startswith("{-") and not first.startswith("{-#"):
        close, end = ("*/" if style == "slash" else "-}"), at
        while end < min(at + 100, len(lines)) and close not in lines[end]:
            end += 1
        text = [re.sub(r"^\s*(/\*+!?|\{-\s*\|?|\*+(?!/))\s?|\s*(\*+/|-\})\s*$", "", line) for line in lines[at : end + 1]]
        return text, end + 1
    sign = {"slash": "//", "hash": "#", "dash": "--"}.get(style)
    if sign and first.startswith(sign) and not first.startswith("#!"):
        end = at
        while end < len(lines) and lines[end].strip().startswith(sign):
            end += 1
        return [re.sub(r"^\s*(//[/!]?|#+|--+\s*[|^]?)\s?", "", line) for line in lines[at:end]], end
    if style == "hash" and re.match(r'@(module)?doc\s+(~[sS])?"""', first):
        end = at + 1
        while end < len(lines) and '"""' not in lines[end]:
            end += 1
        return lines[at + 1 : end], end + 1
    return None, at


def docstring(lines, at):
    """A Python docstring at a line: its text, and the line behind it."""
    found = at < len(lines) and re.match(r"\s*[rRuU]?(\"\"\"|''')", lines[at])
    if not found:
        return None, at
    rest = lines[at][found.end() :]
    if found[1] in rest:
        return [rest.split(found[1])[0]], at + 1
    end = at + 1
    while end < len(lines) and found[1] not in lines[end] and end - at < 80:
        end += 1
    return [rest, *lines[at + 1 : end]], end + 1


def definitions(lines, style):
    """(description or None, name, code) of each definition, and the file's first comment."""
    at, head, found = 0, None, []
    while at < len(lines):
        if style == "python":
            line = lines[at].strip()
            if at < 5 and head is None:
                text, end = docstring(lines, at)
                if text:
                    head, at = prose(text), end
                    continue
            if line.startswith(("def ", "class ", "async def ")):
                end = at
                while end < min(at + 12, len(lines)) and not lines[end].rstrip().endswith(":"):
                    end += 1
                text, body = docstring(lines, end + 1)
                code = block(lines, at)
                code = lines[at : end + 1] + lines[body : body + len(code)] if text else code
                found.append((text and prose(text), name_of(line.removeprefix("async ")), code))
            at += 1
            continue
        text, end = comment(lines, at, style)
        if text is None:
            name = name_of(lines[at]) if lines[at].strip() else None
            if name:
                found.append((None, name, block(lines, at)))
            at += 1
            continue
        below = end
        while below < len(lines) and below - end < 4 and lines[below].lstrip().startswith(("#[", "@", "[[")):
            below += 1
        name = name_of(lines[below]) if below < len(lines) else None
        said = prose(text)
        if name and said:
            found.append((said, name, block(lines, below)))
            end = below + 1
        elif head is None and at < 30:
            head = said
        at = max(end, at + 1)
    return found, head


class Pairs:
    def __init__(self, out):
        self.out, self.count, self.seen = out, 0, set()

    def add(self, kind, said, extra, code):
        query = tokens(said)[:28]
        if len(query) < (2 if kind == "n" else 3):
            return
        counts = {}
        for token in extra + tokens(code):
            counts[token] = counts.get(token, 0) + 1
        bag = list(counts.items())[:90]
        mark = zlib.crc32(" ".join(query + [t for t, _ in bag[:30]]).encode())
        if len(bag) < 6 or mark in self.seen:
            return
        self.seen.add(mark)
        self.out.write(f"{kind}\t{' '.join(query)}\t{' '.join(t if n == 1 else f'{t}:{min(n, 9)}' for t, n in bag)}\n")
        self.count += 1


def take(path, text, pairs):
    style = STYLES[path.rsplit(".", 1)[1].lower()]
    lines = text.split("\n")
    if len(lines) < 4 or len(text) > 160 * len(lines):
        return
    begin = pairs.count
    found, head = definitions(lines, style)
    folders = tokens("/".join(path.split("/")[-3:]).rsplit(".", 1)[0])
    for number, (said, name, code) in enumerate(found):
        if pairs.count - begin >= PAIRS_PER_FILE:
            break
        if said:
            pairs.add("d", said, tokens(name or "") + (folders if number % 2 else []), "\n".join(code))
        elif name and number % 3 == 0 and len(code) > 4 and len(tokens(name)) > 1 and not name.startswith(("test", "__")):
            pairs.add("n", name, [], "\n".join(code[1:]))
    if head:
        names = [name for _, name, _ in found if name]
        pairs.add("f", head, folders, " ".join(names[:60]) + "\n" + "\n".join(lines[10:70]))


def tar(data):
    with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
        for member in archive:
            if member.isfile() and member.size < FILE_BYTES:
                yield member.name, archive.extractfile(member).read()


def members(path):
    data = open(path, "rb").read()
    if path.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                if archive.getinfo(name).file_size < FILE_BYTES:
                    yield name, archive.read(name)
    elif path.endswith(".deb"):
        at = 8
        while at + 60 <= len(data):
            name, size = data[at : at + 16].decode().strip(" /"), int(data[at + 48 : at + 58])
            if name.startswith("data.tar"):
                yield from tar(data[at + 60 : at + 60 + size])
            at += 60 + size + size % 2
    else:
        yield from tar(data)


def debian_licence(text):
    """The licences of a Debian copyright file, those of the packaging itself left out."""
    names = []
    for stanza in re.split(r"\n\s*\n", text):
        files = re.search(r"^Files: *((?:.*\n?)(?:^[ \t].*\n?)*)", stanza, re.M)
        named = re.search(r"^License: *(\S.*)$", stanza, re.M)
        if files and named and not all(f.startswith("debian/") for f in files[1].split()):
            names.append(named[1].lower().replace("~", " "))
    return " and ".join(names)


def licence_of(registry, files):
    for name, data in files:
        if registry == "crate" and name.count("/") == 1 and name.endswith("/Cargo.toml"):
            found = re.search(rb'^license = "(.*)"', data, re.M)
            return found[1].decode() if found else ""
        if registry in ("deb", "debsrc") and name.endswith("/copyright"):
            return debian_licence(data.decode("utf8", "replace"))
    return ""


def main(folder, out, shard, shards):
    groups = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".part"):
            groups.setdefault(tuple(name.split("--")[:2]), []).append(os.path.join(folder, name))
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/pairs-{shard}.tsv", "w") as text, open(f"{out}/inventory-{shard}.tsv", "w") as inventory:
        pairs = Pairs(text)
        for number, ((registry, package), paths) in enumerate(sorted(groups.items())):
            if number % shards != shard or BENCHMARK.search(package):
                continue
            try:
                files = [file for path in paths for file in members(path)]
            except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, ValueError):
                continue
            # The other registries say their licence, and inputs.tsv has only those that are permissive.
            if registry in ("crate", "deb", "debsrc") and not permissive(licence_of(registry, files)):
                continue
            text.write(f"P\t{registry}/{package}\n")
            begin, used = pairs.count, 0
            for name, data in files:
                ending = name.rsplit(".", 1)[-1].lower()
                if ending not in STYLES or SKIP.search(name) or BENCHMARK.search(name) or name.endswith(".d.ts") and len(data) < 1500:
                    continue
                used += len(data)
                take(name, data.decode("utf8", "replace"), pairs)
                if pairs.count - begin >= PAIRS_PER_PACKAGE or used > BYTES_PER_PACKAGE:
                    break
            inventory.write(f"{registry}\t{package}\t{pairs.count - begin}\t{used}\n")
            inventory.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
