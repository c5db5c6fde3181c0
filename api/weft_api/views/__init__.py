"""Lists of jobs that users have saved under a name, for all members of the project."""
