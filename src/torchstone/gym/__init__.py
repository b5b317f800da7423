"""Rewards for models that write kernels."""
