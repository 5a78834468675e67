"""SASL on the broker's side: the exchanges of the mechanisms, and the gate, which serves frames before dispatch until a
client has logged in.
"""
