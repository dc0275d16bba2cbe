"""Why attempts end and what follows. Pure: used in the job and on the login side."""
