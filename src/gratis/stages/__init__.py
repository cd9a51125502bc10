"""One private step a file: `plan_…` fixes event and settings from public facts, `release_…` adds up rows and noise.

What a step makes of its release is post-processing and has files of its own (`curve_basis`, `block_shrinkage`,
`gradient_posterior`).
"""
