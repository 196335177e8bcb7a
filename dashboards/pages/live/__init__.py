"""The live page: app and layout, what it does, its figures and other parts. Who serves it is in
`dashboards.pages.server`."""
