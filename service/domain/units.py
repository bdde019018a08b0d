"""Conversion factors between units of time and of size."""

SECONDS_AN_HOUR = 3600
HOURS_A_DAY = 24
SECONDS_A_DAY = 86_400
DAYS_A_WEEK = 7
DAYS_A_YEAR = 365.25

HOURS_A_MONTH = 730
"""Hours in a month of prices per month: a twelfth of a year of 8,760 hours, as AWS and Azure count."""

MB = 1e6
"""Bytes of a megabyte."""

BITS_PER_BYTE = 8

GIB = 1024.0**3
"""Bytes of a gibibyte."""
