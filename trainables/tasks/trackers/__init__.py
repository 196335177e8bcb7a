"""What follows an object through a sequence of images, with torch; the kind of task is beside it."""
