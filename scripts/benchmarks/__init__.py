"""The tables of `python scripts/benchmark.py`: what is compared, checked and measured, one module each."""
