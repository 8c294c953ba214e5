"""What the words mean: frozen records of the contract and their wire form; no I/O, no threads."""
