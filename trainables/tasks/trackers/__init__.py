"""Trackers, which follow an object through a sequence of images. The kind of task is in
`object_tracking`."""
