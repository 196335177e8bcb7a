"""From a search YAML to a checked configuration and its space. Nothing is trained or started
here."""
