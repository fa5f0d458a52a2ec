"""One module per participant, as `benchmarks.contract.Adapter` says. Each imports one framework only."""
