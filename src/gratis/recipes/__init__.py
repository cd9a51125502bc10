"""One model a file: which private steps it takes, with which shares of the budget, fixed by public facts."""
