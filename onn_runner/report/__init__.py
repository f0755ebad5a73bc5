"""What a run leaves behind for people: its folder, its results file, its tables, its TensorBoard summary."""
