"""This user's own Redis server, for machines where nobody runs one."""
