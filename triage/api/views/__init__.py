"""The API's answers: thin callers of selectors and services."""
