"""The bill of materials in a wheel (PEP 770): CycloneDX, told from the wheel's own build record."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

SCHEMA = SchemaVersion.V1_6
FILE = "sboms/wheelfab.cdx.json"  # below the dist-info folder
_NAMESPACE = uuid.UUID("6ad7f7b7-3fc5-5cf3-9a4c-1f6c0c8d6f2e")


def make_sbom(record: Mapping[str, Any]) -> bytes:
    """The bill of a wheel whose build record (``_build.json``) is ``record``, as canonical JSON.

    Equal records give equal bytes: the time is the commit's and the serial number is made of the
    wheel's version and plan.
    """
    name, version = str(record["project"]), str(record["version"])
    whole = Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}@{version}",
        purl=_purl(name, version),
        properties=[
            Property(name=f"wheelfab:{key}", value=str(record[key]))
            for key in ("cell", "profile", "commit", "plan")
            if record.get(key) is not None
        ],
    )
    parts = [*_bundled(record), *_inputs(record)]
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"{name} {version} {record['plan']}"))
    bom.metadata.timestamp = datetime.fromtimestamp(int(record["epoch"]), UTC)
    bom.metadata.component = whole
    bom.metadata.lifecycles.add(PredefinedLifecycle(phase=LifecyclePhase.BUILD))
    bom.components.update(parts)
    bom.register_dependency(whole, parts)
    document = json.loads(make_outputter(bom, OutputFormat.JSON, SCHEMA).output_as_string())
    document["components"].sort(key=lambda part: part["bom-ref"])
    document["dependencies"].sort(key=lambda need: need["ref"])
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _bundled(record: Mapping[str, Any]) -> Iterator[Component]:
    """The compiled files in the wheel."""
    for name, sha256 in record["libraries"].items():
        yield _component(name, None, "bundled", kind=ComponentType.FILE, sha256=sha256)


def _inputs(record: Mapping[str, Any]) -> Iterator[Component]:
    """What the wheel was made with: torch, the device toolchain, the host compiler, the tools."""
    torch = record["torch"]
    yield _pypi("torch", torch["headers"], "compiled-against", torch["sha256"])
    compilers = record["compilers"]
    for wheel, sha256 in ((compilers["device"] or {}).get("wheels", {})).items():
        package, _, version = wheel.partition(" ")
        yield _pypi(package, version, "device-toolchain", sha256)
    host = compilers["host"]
    kind, sha256 = ComponentType.APPLICATION, host["cc1plus_sha256"]
    yield _component("g++", str(host["version"]), "host-compiler", kind=kind, sha256=sha256)
    for package, text in record["tools"].items():
        version, _, sha256 = text.partition(" ")
        yield _pypi(package, version, "build-tool", sha256 or None)


def _pypi(package: str, version: str, role: str, sha256: str | None) -> Component:
    purl = _purl(package, version)
    return _component(package, version, role, sha256=sha256, purl=purl)


def _component(
    name: str,
    version: str | None,
    role: str,
    *,
    kind: ComponentType = ComponentType.LIBRARY,
    sha256: str | None = None,
    purl: PackageURL | None = None,
) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []
    return Component(
        name=name,
        version=version,
        type=kind,
        bom_ref=f"{role}:{name}@{version}" if version else f"{role}:{name}",
        hashes=hashes,
        purl=purl,
        properties=[Property(name="wheelfab:role", value=role)],
    )


def _purl(package: str, version: str) -> PackageURL:
    return PackageURL(type="pypi", name=package, version=version)
