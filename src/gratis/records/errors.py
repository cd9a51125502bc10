"""What can go wrong, as types: every message is one sentence and holds no value computed from private data."""

from __future__ import annotations

__all__ = [
    "BudgetExceededError",
    "CertificateError",
    "ChangedTableError",
    "GratisError",
    "LedgerError",
    "MissingExtraError",
    "PrivacyLeakWarning",
    "WorthlessFitWarning",
]


class GratisError(ValueError):
    """A request that Gratis refuses: bad parameters, or a promise that cannot be kept."""


class LedgerError(GratisError):
    """The ledger cannot be read, is damaged, or was asked for something that it must refuse."""


class BudgetExceededError(LedgerError):
    """The reservation would spend more than the data set's budget."""


class CertificateError(GratisError):
    """The certificate is malformed or does not follow from its events."""


class ChangedTableError(GratisError):
    """Another table lies where one was opened: rows of the two must not be added up."""

    def __init__(self) -> None:
        super().__init__(
            "the table is no longer the one that was opened, or differs from machine to machine: nothing was released "
            "from it"
        )


class PrivacyLeakWarning(UserWarning):
    """Something that no guarantee covers is about to be computed from private rows; known from public facts."""


class WorthlessFitWarning(UserWarning):
    """A fit is about to spend its budget on what is predicted to learn next to nothing; known from public facts."""


class MissingExtraError(GratisError, ImportError):
    """An optional dependency is needed; the message names the extra that brings it."""
