"""The Python interface: what `import bitfront as bf` offers. Searches are in `searching` and
`opened`, networks in `networks` and `binarizing`."""
