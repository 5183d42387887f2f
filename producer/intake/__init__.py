"""From bytes to rows: reads a submitted file line by line and says what is wrong with a line that is no row."""
