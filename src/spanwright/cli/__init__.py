"""The command line. Each command is one thin function; torch is imported only by the commands that compute."""
