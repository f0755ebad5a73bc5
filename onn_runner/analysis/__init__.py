"""What networks cost, look at and could do without: measurements on one network, without data sets and folders."""
