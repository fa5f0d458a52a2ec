"""The same attacks on capfold and on its peers, each a small program whose end is looked at."""
