"""The documentation site, built by mkdocs (mkdocs.yml): pages and drawings made from the code,
links of files outside docs/. What the pages say stands in docs/."""
