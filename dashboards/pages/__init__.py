"""The report and the live page: layout, server, scripts and styles. Single pictures are in
`dashboards.figures`."""
