"""Sections of a search YAML that stand by themselves, as pydantic models; the others are in
`schema`."""
