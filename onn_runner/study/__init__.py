"""Many runs read together: methods and their seeds, means with intervals, paired comparisons with a baseline."""
