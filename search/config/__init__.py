"""From a search YAML to a checked configuration and its space."""
