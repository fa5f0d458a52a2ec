"""Overhead of capfold beside its peers, measured in one run; start it with `python benchmarks/run.py`.

This file is here so that no installed package that carries a folder `benchmarks` is imported instead.
"""
