"""The end of a repair in the container: bill of materials, canonical bytes, the gate."""

from __future__ import annotations

import sys
from pathlib import Path

from wheelfab import console
from wheelfab.compose import finish_wheel
from wheelfab.errors import FactoryError, WheelError
from wheelfab.manylinux.order import read_order


def main(folder: Path) -> int:
    """Finish the one wheel in ``folder``, where auditwheel left it."""
    try:
        plan, cell = read_order()
        wheels = sorted(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise WheelError(f"{len(wheels)} wheels where one was due", where=str(folder))
        finish_wheel(wheels[0], wheels[0], plan, cell)
    except FactoryError as error:
        console.error(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
