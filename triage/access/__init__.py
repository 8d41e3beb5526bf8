"""Who asks, what they may do (roles), what they see (sight). docs/access.md is the description for operators.

roles.py       the four roles, in order
sight.py       what somebody sees, and who looks right now
visible.py     for every model: which rows a sight holds. The one place
managers.py    `objects` of every model: only what is seen
sql.py         the same for SQL written by hand
viewer.py      role and sight of a user
middleware.py  each request looks with the eyes of who sent it
"""
