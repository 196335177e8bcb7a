"""What follows an object through a sequence of images; the kind of task is `object_tracking`."""
