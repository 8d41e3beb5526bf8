"""Pages: thin views over the selectors and services, with their forms, words and helpers."""
