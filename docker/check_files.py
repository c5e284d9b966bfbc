#!/usr/bin/python3
"""Checks the files of this folder as far as that goes without Docker: they parse, every file they
name exists, names agree between them, and the Dockerfile installs what scripts/packages.sh lists."""

import pathlib
import re
import sys
import tomllib

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def main():
    faults = []
    compose = yaml.safe_load((HERE / "compose.yaml").read_text(encoding="utf-8"))
    prometheus = yaml.safe_load((HERE / "prometheus.yml").read_text(encoding="utf-8"))
    proxy = tomllib.loads((HERE / "proxy.toml").read_text(encoding="utf-8"))
    tomllib.loads((HERE / "users.toml").read_text(encoding="utf-8"))
    services = compose["services"]

    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not (HERE / source).is_file():
                faults.append(f"compose.yaml: {name} mounts {source}, which does not exist")
        for other in service.get("depends_on", {}):
            if other not in services:
                faults.append(f"compose.yaml: {name} depends on {other}, which does not exist")
        build = service.get("build")
        if build and not (HERE / build["context"] / build["dockerfile"]).is_file():
            faults.append(f"compose.yaml: {name} has no {build['dockerfile']}")

    port = proxy["metrics"]["listen"].rsplit(":", maxsplit=1)[1]
    for target in prometheus["scrape_configs"][0]["static_configs"][0]["targets"]:
        host, target_port = target.split(":")
        if host not in services or target_port != port:
            faults.append(f"prometheus.yml: nothing serves {target}")

    proxies = [service for name, service in services.items() if name.startswith("proxy")]
    for shard in proxy["shards"]:
        host = re.search(r"host=(\S+)", shard["conninfo"]).group(1)
        if host not in services:
            faults.append(f"proxy.toml: no service {host}")
        if any(shard["password_env"] not in service["environment"] for service in proxies):
            faults.append(f"compose.yaml: {shard['password_env']} is not set for every proxy")

    packages = (ROOT / "scripts/packages.sh").read_text(encoding="utf-8")
    wanted = re.search(r"build_packages=\((.*?)\)", packages, re.DOTALL).group(1).split()
    dockerfile = (HERE / "Dockerfile").read_text(encoding="utf-8").split("FROM ")[1]
    for package in wanted:
        if not re.search(rf"(?<!\S){re.escape(package)}(?!\S)", dockerfile):
            faults.append(f"Dockerfile: the build stage lacks {package}")

    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
