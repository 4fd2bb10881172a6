"""Media that requests carry: kept in memory files, read within limits, decoded where a crash costs one worker."""
