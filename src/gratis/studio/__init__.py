"""The page in the browser: plan, read a table, spend with a certificate, look at a model.

Nothing is computed here that the command line does not compute: plans are `gratis.plan`, a fit is the command
`gratis fit` in a process of its own, budgets are the ledger's.
"""
