"""What can be wrong with a database, in sentences for the person who starts the service."""


class DatabaseUnusable(Exception):
    """The database cannot be used as it is; the message says why and what to do."""
