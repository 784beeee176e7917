from planted import helpers
from planted.reexport import capability as renamed

from .helpers import BACKENDS, Child, Context, Probe, factory, guarded, register

MAJOR = renamed()
GUARDED = guarded()
PROBE = Probe.build()
CHILD = Child()


@register
def one() -> None:
    pass


@factory("two")
def two() -> None:
    pass


with Context():
    pass


@helpers.register
def three() -> None:
    pass
