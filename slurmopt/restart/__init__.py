"""Why attempts end and what follows: pure facts and arithmetic, used in the job and on the login side alike."""
