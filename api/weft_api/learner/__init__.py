"""The learners' own API, which only an attempt's token opens."""
