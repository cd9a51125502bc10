"""The budget of a data set across runs: reserve, train, commit; append-only, hash-chained, durable."""

from gratis.ledger.accounts import Reservation, Status
from gratis.ledger.ledger import Ledger, Verification, content_fingerprint

__all__ = ["Ledger", "Reservation", "Status", "Verification", "content_fingerprint"]
