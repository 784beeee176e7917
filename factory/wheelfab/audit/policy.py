"""The policy of an audit: what is allowed, read from TOML with all its errors reported."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from wheelfab.audit.record import Severity


class WheelKind(StrEnum):
    """What a wheel is, for what it may need and hold."""

    PURE = "pure"  # no shared library
    CPU = "cpu"
    CUDA_DRIVER = "cuda-driver"  # device code that it hands to the driver itself
    CUDA_RUNTIME = "cuda-runtime"  # linked with the CUDA runtime, as torch's own extensions are


class Table(BaseModel):
    """A table of the policy file: unknown keys are errors, keys are written with hyphens."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class IgnoreTable(Table):
    """One kind of finding that is let pass."""

    rule: str = Field(description="A rule's name, or a pattern: `archive-*`.")
    subject: str = Field(description="The subject, or a pattern: `*/tests/*`.")
    reason: str = Field(min_length=1, description="Why; it is shown with the finding.")


class Policy(Table):
    """What an audit allows; every key has a default."""

    kind: WheelKind | None = Field(
        default=None, description="What the wheel must be; by default it is taken as what it is."
    )
    required: tuple[str, ...] = Field(
        default=(),
        description="Rules, or patterns, that must have been checked: else the exit code is 15.",
    )
    severity: dict[str, Severity] = Field(
        default_factory=dict, description="Rule = `error`, `warning` or `note`."
    )
    ignore: tuple[IgnoreTable, ...] = Field(
        default=(), description="Findings that are let pass, each with a reason."
    )
