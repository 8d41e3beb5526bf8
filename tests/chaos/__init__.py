"""Everything that can die dies, at random moments, while attempts arrive: `make chaos ROUNDS=100`.

Web server, worker, beat, PostgreSQL and Valkey run as processes of their own, started by the project's supervisor in a
temporary folder. A round sends attempts by API and by watched folder, does something to the installation meanwhile,
mends it, waits until nothing is at work any more, and counts (ledger.py): every attempt that was taken is there, each
diagnosed once and as it is without trouble, nothing is half written, every hash holds.
"""
