"""Sessions made from matrix.toml: `nox --list` shows them. wheelfab is installed beside nox."""

from wheelfab.nox import register

register("matrix.toml")
