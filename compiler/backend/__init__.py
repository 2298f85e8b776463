"""The room that writes TensorFlow and runs it."""
