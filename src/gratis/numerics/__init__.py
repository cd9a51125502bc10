"""Mathematics without privacy meaning: outward rounding, the Gaussian trade-off, rounding bounds."""
