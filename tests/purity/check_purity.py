#!/usr/bin/python3
"""Proves that the pure folders stay pure: check_purity.py BUILD_DIR

From the sources: no file of a pure target reaches a forbidden header through project includes.
From the build: no object of a pure target refers to a forbidden symbol, and the test programs that
hold only pure targets link no library but the allowed ones.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Target -> its sources. What each may link stands in ALLOWED_LINKS.
PURE = {
    "collegedb_error": ["proxy/wire/error.*"],
    "collegedb_wire": ["proxy/wire/*"],
    "collegedb_stats": ["metrics/stats.*"],
    "collegedb_parser": ["parser/*"],
    "collegedb_routing": ["routing/*"],
    "collegedb_session": ["proxy/session/*"],
    "collegedb_machine": ["migration/machine*"],
}
FORBIDDEN_HEADERS = re.compile(
    r"^(boost/asio|boost/beast|boost/thread|boost/chrono|openssl/ssl|libpq-fe\.h|libpq/|pqxx|"
    r"prometheus/|spdlog/|thread$|chrono$|mutex$|shared_mutex$|condition_variable$|future$|"
    r"semaphore$|latch$|barrier$|stop_token$|ctime$|time\.h$|sys/time\.h$|sys/socket\.h$|"
    r"sys/epoll\.h$|netinet/|arpa/|poll\.h$|unistd\.h$|pthread\.h$|fstream$|filesystem$)")
FORBIDDEN_SYMBOLS = re.compile(
    r"boost::asio|boost::beast|pqxx::|prometheus::|spdlog::|std::thread|std::this_thread|"
    r"std::chrono::_V2|\bPQ[a-z]\w*|\bSSL_\w+|\bpthread_create|\bclock_gettime|\bgettimeofday|"
    r"\bsocket$|\bconnect$|\brecv\w*$|\bsend\w*$|\bepoll_\w+")
ALLOWED_LINKS = re.compile(
    r"(-lpg_query|lib(collegedb_(error|wire|stats|parser|routing|session|machine)\.a|crypto\.so|pg_query\.(so|a)|"
    r"g(test|mock)(_main)?\.a))$")
# Test programs made of pure targets only.
PURE_PROGRAMS = ["wire_test", "parser_test", "routing_test", "session_test"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def project_files(patterns):
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))
            if path.suffix in (".h", ".cpp")]


def check_includes(target, patterns):
    """Every forbidden header reached from the target's files, with the way there."""
    faults = []
    ways = {path: [path] for path in project_files(patterns)}
    pending = list(ways)
    if not pending:
        faults.append(f"{target}: no files found")
    while pending:
        path = pending.pop()
        for kind, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            inner = ROOT / name if (ROOT / name).is_file() else path.parent / name
            if kind == '"' and inner.is_file():
                if inner not in ways:
                    ways[inner] = ways[path] + [inner]
                    pending.append(inner)
            elif FORBIDDEN_HEADERS.match(name):
                way = " -> ".join(str(step.relative_to(ROOT)) for step in ways[path])
                faults.append(f"{target}: {way} includes <{name}>")
    return faults


def check_symbols(build, target):
    archive = build / f"lib{target}.a"
    if not archive.exists():
        return [f"{target}: {archive} has not been built"]
    listing = subprocess.run(["nm", "-C", "-u", str(archive)], check=True, capture_output=True,
                             text=True).stdout
    faults = []
    for line in listing.splitlines():
        symbol = line.strip().removeprefix("U ").strip()
        if symbol and not line.endswith(":") and FORBIDDEN_SYMBOLS.search(symbol):
            faults.append(f"{target}: refers to {symbol}")
    return faults


def check_links(build):
    """Libraries of the pure test programs, read from the link statements of build.ninja."""
    text = (build / "build.ninja").read_text(encoding="utf-8")
    faults = []
    for program in PURE_PROGRAMS:
        statement = re.search(rf"^build tests/{program}\b.*?\n((?:  .*\n)+)", text, re.MULTILINE)
        libraries = statement and re.search(r"LINK_LIBRARIES = (.*)", statement.group(1))
        if not libraries:
            faults.append(f"{program}: no link statement in build.ninja")
            continue
        for library in libraries.group(1).split():
            name = library.rsplit("/", maxsplit=1)[-1]
            if not library.startswith("-Wl,") and not ALLOWED_LINKS.match(name):
                faults.append(f"{program}: links {library}")
    return faults


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    faults = check_links(build)
    for target, patterns in PURE.items():
        faults += check_includes(target, patterns)
        faults += check_symbols(build, target)
    # The precompiled header goes before every file of a pure target.
    faults += check_includes("cmake/pch_std.h", ["cmake/pch_std.h"])
    for fault in sorted(set(faults)):
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
