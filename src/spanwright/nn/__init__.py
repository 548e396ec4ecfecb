"""Shared mathematics of the heads: tensors in, tensors out, no parameters, no labels, no words."""
