#!/usr/bin/env python3
"""Resolves and downloads the packages that the search vectors are trained on.

    inputs.py resolve NAMES > inputs.tsv   looks up the current version of each package (registry TAB name per line)
    inputs.py fetch DIR                    downloads the versions of inputs.tsv and checks their hashes

Every line of inputs.tsv is: registry, name, version, SHA-256, URL, licence. A package is kept only if every licence that
it names is permissive and its name is not one of the benchmark's repositories.
"""
import concurrent.futures, gzip, hashlib, json, lzma, os, re, sys, urllib.parse, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
# Licences that allow use without conditions on what is derived, beside attribution.
PERMISSIVE = {
    "mit", "mit-0", "x11", "expat", "apache-2.0", "bsd-2-clause", "bsd-3-clause", "bsd", "isc", "0bsd", "zlib", "unlicense",
    "cc0-1.0", "bsl-1.0", "psf-2.0", "python-2.0", "postgresql", "hpnd", "ncsa", "unicode-3.0", "unicode-dfs-2016",
    "blueoak-1.0.0", "bsd-1-clause", "bsd-3-clause-clear", "mit-cmu", "public-domain", "openssl", "libpng", "curl", "boost-1.0",
    "apache2.0", "apache-2", "bsd-2", "bsd-3", "bsd-4-clause", "wtfpl", "cnri-python", "afl-2.1", "ftl", "bsd-like", "mit-style",
}
# The benchmark's repositories, the public ones and those kept apart, and packages that belong to them.
BENCHMARK = re.compile(
    r"(^|[/_.@-])(aiohttp|fastapi|flask|httpx|model2vec|pydantic|requests|starlette|axios|express|redux|gin|gin-gonic|cobra|"
    r"chi|gson|lang3|jackson|guzzle\w*|monolog|illuminate|laravel|sinatra|rack|rails|railties|tokio|trpc|messagepack|msgpack|ktor|cats|"
    r"alamofire|click|serde|zod|nlohmann|phoenix|axum|vitest|newtonsoft|dapper|kotlinx|exposed|circe|http4s|vapor|snapkit|"
    r"plug|ecto|absl|abseil|fmt|fmtlib|curl|libuv|bats|aeson|telescope|lazy|zig|nvm|pandoc|xmonad|zls|semble)(?=[/_.-]|\d*$)", re.I)
CLASSIFIERS = {
    "MIT License": "mit", "MIT No Attribution License (MIT-0)": "mit-0", "Apache Software License": "apache-2.0",
    "BSD License": "bsd", "ISC License (ISCL)": "isc", "Python Software Foundation License": "psf-2.0",
    "The Unlicense (Unlicense)": "unlicense", "zlib/libpng License": "zlib", "Boost Software License 1.0 (BSL-1.0)": "bsl-1.0",
    "Historical Permission Notice and Disclaimer (HPND)": "hpnd",
}
PYPI, NPM = "https://pypi.org/pypi/", "https://registry.npmjs.org/"
CRATES, CRATE_FILES = "https://index.crates.io/", "https://static.crates.io/crates/"
DEBIAN = "http://deb.debian.org/debian/"


def read(url, tries=3):
    for left in range(tries, 0, -1):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read()
        except OSError:
            if left == 1:
                raise


def permissive(expression):
    """Whether every licence that an SPDX expression names is permissive."""
    names = [name for name in re.split(r"[\s()/,;]+", expression.lower()) if name]
    names = [name for name in names if name not in ("and", "or", "with", "llvm-exception", "license", "the")]
    return bool(names) and all(name in PERMISSIVE for name in names)


def pypi(name):
    info = json.loads(read(f"{PYPI}{name}/json"))
    about = info["info"]
    licence = about.get("license_expression") or ""
    if not licence:
        named = [c.split(" :: ")[-1] for c in about.get("classifiers", []) if c.startswith("License :: OSI")]
        licence = " AND ".join(CLASSIFIERS.get(n, n.replace(" ", "-")) for n in named) or (about.get("license") or "")[:40]
    files = [f for f in info["urls"] if f["packagetype"] == "bdist_wheel" and f["filename"].endswith("none-any.whl")]
    if files:
        return about["version"], files[0]["digests"]["sha256"], files[0]["url"], licence


def npm(name):
    info = json.loads(read(NPM + urllib.parse.quote(name, safe="@") + "/latest"))
    licence = info.get("license")
    licence = licence if isinstance(licence, str) else (licence or {}).get("type", "")
    url = info["dist"]["tarball"]
    return info["version"], hashlib.sha256(read(url)).hexdigest(), url, licence


def crate(name):
    parts = {1: f"1/{name}", 2: f"2/{name}", 3: f"3/{name[0]}/{name}"}
    path = parts.get(len(name), f"{name[:2]}/{name[2:4]}/{name}").lower()
    lines = [json.loads(line) for line in read(CRATES + path).splitlines()]
    last = [line for line in lines if not line["yanked"]][-1]
    # The licence stands in the package itself; extract.py checks it.
    return last["vers"], last["cksum"], f"{CRATE_FILES}{name}/{name}-{last['vers']}.crate", "see package"


def debian(kind):
    path = {"deb": "main/binary-amd64/Packages.xz", "debsrc": "main/source/Sources.xz"}[kind]
    text = lzma.decompress(read(f"{DEBIAN}dists/bookworm/{path}")).decode()
    found = {}
    for stanza in text.split("\n\n"):
        field = dict(re.findall(r"^(\w[\w-]*): ?(.*)$", stanza, re.M))
        if kind == "deb" and "Filename" in field:
            found[field["Package"]] = [(field["Version"], field["SHA256"], DEBIAN + field["Filename"], "see package")]
        elif kind == "debsrc" and "Directory" in field:
            sums = re.search(r"^Checksums-Sha256:\n((?: .*\n?)+)", stanza, re.M)
            files = [line.split() for line in sums.group(1).splitlines()] if sums else []
            wanted = [f for f in files if re.search(r"\.orig\.tar\.\w+$|\.debian\.tar\.\w+$", f[2])]
            found[field["Package"]] = [
                (field["Version"], f[0], f"{DEBIAN}{field['Directory']}/{f[2]}", "see package") for f in wanted if int(f[1]) < 40_000_000]
    return found


def resolve(names):
    lines = [line.split("\t") for line in open(names).read().splitlines() if line]
    lists = {kind: debian(kind) for kind in {line[0] for line in lines} & {"deb", "debsrc"}}

    def one(line):
        registry, name = line[:2]
        if BENCHMARK.search(name):
            return []
        try:
            if registry in lists:
                return [(registry, name, *file) for file in lists[registry].get(name, [])]
            found = {"pypi": pypi, "npm": npm, "crate": crate}[registry](name)
        except (OSError, KeyError, ValueError, IndexError):
            return []
        if not found or found[3] != "see package" and not permissive(found[3]):
            return []
        return [(registry, name, *found)]

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for rows in pool.map(one, lines):
            for row in rows:
                print("\t".join(row), flush=True)


def fetch(folder):
    os.makedirs(folder, exist_ok=True)
    rows = [line.split("\t") for line in open(os.path.join(HERE, "inputs.tsv")).read().splitlines() if line[:1] != "#"]

    def one(row):
        registry, name, version, digest, url, _ = row
        path = os.path.join(folder, f"{registry}--{name.replace('/', '+')}--{os.path.basename(urllib.parse.unquote(url))}")
        if os.path.exists(path):
            return
        try:
            data = read(url)
        except OSError as error:
            print(f"{name} {version}: {error}", file=sys.stderr)
            return
        if hashlib.sha256(data).hexdigest() != digest:
            print(f"{name} {version}: another content than the one that was pinned", file=sys.stderr)
            return
        with open(path + ".part", "wb") as out:
            out.write(data)
        os.rename(path + ".part", path)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(one, rows))


if __name__ == "__main__":
    {"resolve": resolve, "fetch": fetch}[sys.argv[1]](sys.argv[2])
