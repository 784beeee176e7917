"""Makes the emulation of devices that hosts and the GPU loop ask for (``project.device-run``).

Run by path: ``python emulate.py FOLDER TORCH``. ``TORCH`` is the package's folder of a CPU build of
torch. What it makes in ``FOLDER`` needs neither this repository nor a compiler to be used, and
works with any copy of that torch. It prints JSON: ``environment``, the variables for the fake
driver, and ``before``, Python code to run before torch is imported.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "factory")]

from tests.drivers import build, host_cuda  # noqa: E402 (run by path, it finds them itself)
from tests.fibers import build as fibers  # noqa: E402
from wheelfab.errors import FactoryError  # noqa: E402

_BEFORE = """\
import importlib.util
_spec = importlib.util.spec_from_file_location("host_cuda", {module!r})
_host_cuda = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_host_cuda)
_host_cuda.HostCuda({backend!r})
"""


def main() -> None:
    """Make the emulation, or say why it cannot be made and exit with code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where everything goes")
    parser.add_argument("torch", type=Path, help="the package's folder of a CPU build of torch")
    options = parser.parse_args()
    folder, torch = options.folder.resolve(), options.torch.resolve()
    try:
        version, cuda = torch_version(torch)
        if cuda is not None:
            sys.exit(
                f"torch {version} is a build for CUDA {cuda}, and the emulation takes the place of "
                "a CPU build's missing CUDA part; give it a CPU build of torch"
            )
        print(json.dumps(emulate(folder, torch)))
    except (FactoryError, fibers.BuildError) as error:
        sys.exit(str(error))


def emulate(folder: Path, torch: Path) -> dict[str, object]:
    """The record that is printed, with everything in ``folder`` made and readable by all."""
    folder.mkdir(parents=True, exist_ok=True)
    kernels = fibers.build(folder)
    backend = build.build_host_cuda(folder, _at_one_path(folder, torch))
    module = folder / "host_cuda.py"
    shutil.copyfile(host_cuda.__file__, module)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return {
        "environment": {"FAKECUDA_KERNELS": str(kernels)},
        "before": _BEFORE.format(module=str(module), backend=str(backend)),
    }


def _at_one_path(folder: Path, torch: Path) -> Path:
    """``torch`` by a path that is the same for any copy: nothing is compiled for each anew."""
    link, aside = folder / "torch", folder / f".torch-{os.getpid()}"
    aside.symlink_to(torch)
    aside.replace(link)
    return link


def torch_version(torch: Path) -> tuple[str, str | None]:
    """``__version__`` and ``cuda`` of the torch package in ``torch``, which is not imported."""
    try:
        statements = ast.parse((torch / "version.py").read_text(encoding="utf-8")).body
    except (OSError, SyntaxError) as error:
        sys.exit(f"{torch} is no package of torch: {error}")
    found: dict[str, object] = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                found[name] = value
    cuda = found.get("cuda")
    return str(found.get("__version__")), None if cuda is None else str(cuda)


if __name__ == "__main__":
    main()
