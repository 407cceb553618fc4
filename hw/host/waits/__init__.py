"""Methods that wait for something outside the method pipeline."""
